"""`launcher report`: one run, or several side by side, as one self-contained HTML page: see build.py."""
