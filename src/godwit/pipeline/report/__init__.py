"""Reports on a stretch of a journal."""
