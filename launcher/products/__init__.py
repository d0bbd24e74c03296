"""Optional products, which only import the core: see launcher/plugins.py. Each folder can be deleted."""
