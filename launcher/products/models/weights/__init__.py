"""A run's checkpoints as models that other programs read: list them, export them, and import weights to start from."""
