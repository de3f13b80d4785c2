"""The searches of RaNNC and GPipe, which are compared with ours."""
