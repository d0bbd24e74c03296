"""Runs the jobs of .github/workflows on this machine, as far as they can run here."""
