"""The pages: what they show is run and compared, and what can be generated is. `python -m tests.docs` writes that."""
