"""Slipway's trainer: MaxText under Ray Train's JaxTrainer, or without Ray, one process a host."""
