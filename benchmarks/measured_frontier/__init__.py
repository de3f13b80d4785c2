"""Strategies along a predicted frontier, executed and measured."""
