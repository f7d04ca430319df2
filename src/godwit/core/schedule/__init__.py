"""Schedules and the firings they give."""
