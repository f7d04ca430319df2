"""Where schedules, configuration, history and effects live: PostgreSQL, or the broker's own SQLite file."""
