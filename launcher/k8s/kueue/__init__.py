"""Kueue's rules as pure functions of its objects."""
