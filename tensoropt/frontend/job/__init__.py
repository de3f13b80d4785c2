"""The job: its ranks and machines, their profile, the executor of a plan, and the end of a job."""
