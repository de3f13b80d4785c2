"""How long a script takes from the start of its process to the end of its first step."""
