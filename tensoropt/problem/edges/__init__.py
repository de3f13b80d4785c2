"""What an edge costs: the slots at its ends, and time and memory of each pair of slots."""
