"""The words and rules of a message queue, without I/O."""
