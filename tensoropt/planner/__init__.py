"""Asking for plans: what a step can be, what each way costs, and which is chosen."""
