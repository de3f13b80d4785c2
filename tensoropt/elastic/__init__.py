"""Starts a job under ``mpirun``, and starts it again on the machines that are left after a loss."""
