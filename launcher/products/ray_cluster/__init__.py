"""Long-lived Ray clusters, and runs as their jobs."""
