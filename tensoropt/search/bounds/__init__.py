"""Lower bounds on all strategies by message passing (TRW-S), and what they prove."""
