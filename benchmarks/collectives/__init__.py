"""How fast collectives are: ours between ranks of a machine, MPI's, Horovod's, and one memcpy."""
