"""The commands of `godwit`, one module each."""
