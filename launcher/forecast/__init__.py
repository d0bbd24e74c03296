"""What will happen on the chips, before anyone queues: by the TPU compiler, which runs without a TPU.

The compile is a child process (trainer.aot), whose answer is kept by what determines it; all else is arithmetic.
"""
