"""Single strategies: data parallelism, the fastest one, and every operator whole."""
