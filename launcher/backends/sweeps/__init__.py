"""Runs that are submitted together, one for each combination of values."""
