"""The operations of collectives on the members' arrays and tensors, on top of a transport."""
