"""Collectives through Horovod, which is installed by itself and imported here alone.

`module` imports and starts it; `transport` has what a graph is given.
"""
