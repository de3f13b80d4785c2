"""What terms mean, and what is proven of them: types, values, properties, proofs, candidates."""
