"""TODO: what this package is for, and its modules."""
