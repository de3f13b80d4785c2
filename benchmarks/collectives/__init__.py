"""The speed of collectives: ours between ranks of a machine, MPI's, Horovod's, and one memcpy."""
