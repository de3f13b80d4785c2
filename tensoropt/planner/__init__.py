"""Planning: the ways to run a step, their prices, and the choice of a plan."""
