"""The commands of `godwit pipeline`, one module each."""
