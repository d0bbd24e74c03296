"""Run a model in a Hugging Face folder on this machine's CPU, with MLX: generate text, and evaluate it on tasks.

docs/decisions/0014-mlx-on-cpu.md explains why MLX.
"""
