"""Measuring steps: their time, collectives and memory, alone, on trial, or for a profile."""
