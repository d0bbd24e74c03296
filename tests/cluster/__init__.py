"""Tests with a real Kubernetes API server; `control_plane.py` lists what is real and what is simulated."""
