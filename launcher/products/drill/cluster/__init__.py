"""Drills in a namespace of a cluster."""
