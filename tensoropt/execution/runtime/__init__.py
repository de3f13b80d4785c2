"""Programs and their sessions: what is emitted, kept, run and dropped."""
