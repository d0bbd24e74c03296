"""What `launcher forecast` says of training steps that were measured and published, beside what was measured."""
