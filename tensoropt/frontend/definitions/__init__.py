"""Nodes of a GraphDef: finding and renaming nodes, and replacing several by one kernel."""
