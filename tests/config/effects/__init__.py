"""What each environment variable of the specifications does to the running system."""
