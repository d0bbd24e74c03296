"""What stays: the platform's queues and teams' Ray clusters, as Helm releases."""
