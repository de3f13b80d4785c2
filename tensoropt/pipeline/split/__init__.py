"""Stages whose operators frontier tracking splits over the devices of the stage."""
