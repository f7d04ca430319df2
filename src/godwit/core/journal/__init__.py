"""The journal, and the state that follows from it."""
