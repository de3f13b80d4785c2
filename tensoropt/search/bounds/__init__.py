"""Lower bounds on all strategies by message passing (TRW-S), and the gaps that they prove."""
