"""How the package's substitutions are found, proven and compared with the search's space."""
