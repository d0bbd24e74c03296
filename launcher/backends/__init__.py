"""Backends for every kind of run, with one interface (base.py): on this machine, on a cluster, in a Ray cluster.

A backend submits, reads and ends runs. launcher.diagnose explains why a run waits.
"""
