"""Helm releases of the platform's queues and of teams' long-lived Ray clusters."""
