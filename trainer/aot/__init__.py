"""Compiles a run ahead of time, for chips that this machine does not have. `launcher forecast` uses it.

Usage: `python -m trainer.aot RUN_CONFIG.json OUT.json`
"""
