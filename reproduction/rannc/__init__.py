"""The RaNNC paper's evaluation: pipelines of enlarged models on its described test bed."""
