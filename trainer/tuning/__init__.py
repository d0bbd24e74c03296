"""Supervised fine-tuning: rows of instructions and conversations become batches whose loss counts the answers only.

`examples` reads a row as a conversation, `template` renders it with the model's chat template and marks the tokens that
count, and `pipeline` packs examples into the batches of MaxText. The loop, the step and the checkpoints are those of
every other run.
"""
