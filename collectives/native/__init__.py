"""Collectives as a TensorFlow operator in C++, between ranks of one machine.

`transport` adds the operator to a graph, `build` compiles the operator at its first use and caches
it, and `window` makes the memory that the ranks share.
"""
