"""Names that people know: of layers, and of the dimensions of their work."""
