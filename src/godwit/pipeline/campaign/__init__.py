"""Campaigns planned for users in every time zone."""
