"""Tests of the pages: they run the commands that pages show. `python -m tests.docs` writes the generated pages."""
