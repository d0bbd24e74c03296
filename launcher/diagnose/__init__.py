"""Why a run does not start (explain), whether it ever could (preflight), and whether a cluster is ready (doctor).

Everything here only reads: the objects of a cluster, and this machine.
"""
