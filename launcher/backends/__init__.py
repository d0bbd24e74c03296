"""Runs of every kind behind one interface (base.py): on this machine, on a cluster, in a Ray cluster.

A backend submits, reads and ends runs. It does not explain why a run waits; launcher.diagnose does.
"""
