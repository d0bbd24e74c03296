"""Parts that several products use: buckets, the hosts of a Ray cluster, child processes, the memory of a machine."""
