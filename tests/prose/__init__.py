"""Vale on the text of the project: pages, docstrings, comments, messages and the charts' comments."""
