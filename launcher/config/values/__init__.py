"""Values files and --set, read and merged as Helm does it, with file and line of every key."""
