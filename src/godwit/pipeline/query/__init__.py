"""Questions over lake and journal."""
