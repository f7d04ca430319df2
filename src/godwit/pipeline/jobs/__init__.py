"""One thin job per command."""
