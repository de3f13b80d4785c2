"""Measurements of steps: time, collectives and memory, of single steps, trials and profiles."""
