"""The options of planning: declared once, for scripts and for the command line."""
