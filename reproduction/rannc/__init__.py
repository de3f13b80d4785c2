"""Pipeline stages of enlarged models on the test bed of the RaNNC paper, by prediction."""
