"""What commands print, for people and for scripts."""
