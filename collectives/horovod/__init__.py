"""Collectives through Horovod. Users install Horovod themselves; only this package imports it.

`module` imports and starts Horovod; `transport` adds its operators to a graph.
"""
