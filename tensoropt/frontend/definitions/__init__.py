"""Nodes of a GraphDef: finding nodes, and replacing several by one kernel."""
