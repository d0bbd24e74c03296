"""Checks of `launcher doctor` for a platform team: Kueue's configuration, quota and nodes, and what separates teams."""
