"""Pipeline stages of enlarged BERTs on the test bed of the RaNNC paper, by prediction."""
