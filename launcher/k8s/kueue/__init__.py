"""Kueue's rules, as pure functions over its objects."""
