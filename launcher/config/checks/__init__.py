"""Checks of values that need no chips."""
