"""Values files and --set, read and merged as Helm does, with the file and line of every key."""
