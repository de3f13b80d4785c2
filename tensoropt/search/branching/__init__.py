"""Branch and bound over memory and time, for gaps that bounds on weighted costs cannot close."""
