"""The search problem: nodes have a cost per configuration, edges a cost per pair of slots.

`model` defines the problem and `from_graph` builds it from a graph. `operators/` computes the costs
of nodes, `edges/` those of edges. `tensoropt.search` solves it.
"""
