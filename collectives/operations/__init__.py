"""What a collective does to the members' arrays: one operation a file, on top of a transport."""
