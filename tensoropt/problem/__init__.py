"""The search problem: nodes with costs per configuration, edges with costs per pair of slots.

`model` has the problem, `from_graph` builds it from a graph: `operators/` has the costs of nodes,
`edges/` those of edges. It is searched in `tensoropt.search`.
"""
