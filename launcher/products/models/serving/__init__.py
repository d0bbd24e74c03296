"""Served models: the RayServices of charts/serve. A served model is not a run: it has no steps, and does not end."""
