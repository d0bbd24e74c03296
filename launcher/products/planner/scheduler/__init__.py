"""A simulation of Kueue's scheduler over plain values, deterministic and without I/O."""
