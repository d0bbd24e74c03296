"""Slipway's trainer: MaxText under Ray Train's JaxTrainer, or without Ray with one process per host."""
