"""Plans with one option each, and the default that combines the options."""
