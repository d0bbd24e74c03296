"""Slipway's command: merges values, installs charts, submits runs and explains what happens to them."""
