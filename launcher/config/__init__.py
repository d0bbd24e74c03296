"""Values files to a checked launch plan: values, the accelerator table, rules, and MaxText's keys and models.

Everything here is pure: it reads files and the tables that ship with Slipway, and never contacts a cluster.
"""
