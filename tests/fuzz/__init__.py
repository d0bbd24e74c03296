"""Fuzzing: mutated values files, cluster objects, logs and run folders. See tests/fuzz/__main__.py for `make fuzz`."""
