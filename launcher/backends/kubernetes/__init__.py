"""Runs on a cluster, as RayJobs and JobSets."""
