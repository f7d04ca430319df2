"""Failures, and what becomes of a message afterwards."""
