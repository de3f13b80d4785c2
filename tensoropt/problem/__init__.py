"""The search problem: nodes with costs per configuration and edges with costs per pair of slots.

It is built from a graph here, and searched in `tensoropt.search`.
"""
