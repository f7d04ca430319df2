"""A message queue for Python whose whole life is also a Spark table."""

__version__ = "0.1.0"
