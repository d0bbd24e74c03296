"""Simulations of queues: from a file, from queues values and a trace, or from the state of a cluster."""
