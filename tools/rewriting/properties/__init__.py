"""Properties of operators: the axioms of all proofs."""
