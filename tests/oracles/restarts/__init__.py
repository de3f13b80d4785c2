"""Losses of ranks and machines under ``tensoropt run``. Run as a module."""
