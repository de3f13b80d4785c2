"""Measured times of collectives inside a TensorFlow graph, while all groups communicate.

In a training step TensorFlow runs collectives between operators that compute. The measurement
imitates that: one graph has a chain of collectives, and between two of them an operator reads and
writes as much memory as the caches hold. The network time of a collective is the time of the rank
that arrives last, because that rank does not wait for another. If ranks share cores, the network
time is the processor time spent in the collective (`seconds_taken`). `measure_call` measures the
remaining cost: calling Python, and waiting for the other ranks. `measure_links` measures less, in
seconds, between machines.
"""
