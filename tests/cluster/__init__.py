"""Tests that speak to a real Kubernetes API server; `control_plane.py` says what is real and what is not."""
