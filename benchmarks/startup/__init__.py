"""The time from the start of a script's process to the end of its first step."""
