"""Searches of frontiers, of pipelines, of branches and of rewritten graphs."""
