"""Nodes of a GraphDef: finding them, and replacing several by one kernel."""
