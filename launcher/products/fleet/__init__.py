"""The fleet: which runs had which chips, what waited, what was lost, and what it cost. `launcher fleet`."""
