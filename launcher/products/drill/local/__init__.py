"""Drills on this machine."""
