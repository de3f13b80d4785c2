"""Tofu's evaluation: its partition beside others on its described test bed."""
