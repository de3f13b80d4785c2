"""FT-LDP, the paper's Algorithm 2: eliminations and dynamic programming on frontiers."""
