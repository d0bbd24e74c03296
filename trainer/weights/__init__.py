"""Converts a run's checkpoint to a folder in Hugging Face format, and such a folder to weights to start a run from."""
