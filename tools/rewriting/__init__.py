"""Tools that find and prove substitutions and write the package's file of them."""
