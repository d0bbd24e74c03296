"""The simulation of Kueue's scheduler, compared with recordings of the real one."""
