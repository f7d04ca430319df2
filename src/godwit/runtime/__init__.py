"""What runs: producers, workers, and what they need."""
