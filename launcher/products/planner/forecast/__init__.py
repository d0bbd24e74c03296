"""Predict what a run does on its chips before it is queued, with the TPU compiler, which runs without a TPU.

The compile runs in a child process (trainer.aot). Its result is cached under a key of everything that determines it.
The rest is arithmetic.
"""
