"""Journals as tables: the read side of the format `godwit`."""
