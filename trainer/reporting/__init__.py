"""The record and the notifications of a run.

Nothing here stops or delays the training: files are written and notifications are sent in threads of their own, and a
failure is logged once.
"""
