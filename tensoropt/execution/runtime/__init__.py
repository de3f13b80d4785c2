"""Programs and their sessions: emit, keep, run and drop programs; values of variables."""
