"""Compiles a run ahead of time, for chips that this machine does not have: what `launcher forecast` asks.

`python -m trainer.aot RUN_CONFIG.json OUT.json`
"""
