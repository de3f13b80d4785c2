"""The results of subcommands, as text for people and as JSON for programs."""
