"""Standing Ray clusters, and runs as their jobs."""
