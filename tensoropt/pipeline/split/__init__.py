"""Stages that are split over their devices by frontier tracking."""
