"""Collectives as an operator of TensorFlow's in C++, between ranks of one machine.

`transport` has what a graph is given; `build` compiles the operator at its first use and keeps it
for the user, and `window` makes the memory that the ranks share.
"""
