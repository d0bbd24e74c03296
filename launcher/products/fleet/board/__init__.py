"""The live page of `launcher board`: queues and runs, as they are now."""
