"""Branch and bound in the plane of time and memory: what weighted costs alone cannot prove."""
