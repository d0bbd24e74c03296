"""The product `records`: what is left of a run when it is over."""
