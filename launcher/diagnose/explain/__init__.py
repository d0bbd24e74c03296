"""Explain why a run waits or failed. explanation.py explains a run, and each rules_*.py some situations."""
