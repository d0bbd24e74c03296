"""The parts of MaxText's training loop that Slipway replaces, in memory and for this process only.

`hooks` installs the replacements: the batches (`batches`), the metrics (`step_logger`), when a checkpoint is written
relative to them (`saving`) and how it is loaded (`restored_state`). `tuned_steps` adds what a step of fine-tuning
needs. Everything else, including the step itself, is MaxText's, so a step costs the same.
"""
