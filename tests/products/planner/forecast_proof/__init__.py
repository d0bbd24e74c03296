"""Compares forecasts of training steps with the measured times that were published."""
