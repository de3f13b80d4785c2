"""The searches of RaNNC and GPipe, with which ours are compared."""
