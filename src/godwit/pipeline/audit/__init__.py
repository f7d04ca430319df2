"""Whether anything was lost, doubled, stuck or out of order."""
