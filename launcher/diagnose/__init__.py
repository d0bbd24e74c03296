"""Explain why a run does not start (explain), check whether it could (preflight), and check a cluster (doctor).

This package only reads the objects of a cluster and the state of this machine.
"""
