"""The job: its ranks and machines, the profile that holds for them, what runs a plan on them, and
how a job ends."""
