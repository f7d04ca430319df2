"""Rows as messages: the write side of the format `godwit`."""
