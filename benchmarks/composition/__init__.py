"""Options of a plan alone, and the default that combines them."""
