"""MaxText's keys, models, mesh and attention blocks as tables and arithmetic, without importing MaxText.

`make keys` writes keys.json and models.json from the installed MaxText (tests/maxtext_tables).
"""
