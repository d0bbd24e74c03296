"""What can be told of values without chips."""
