"""Fine-tuning: what the trainer makes of examples, before a run starts. The training itself is in trainer/tuning."""
