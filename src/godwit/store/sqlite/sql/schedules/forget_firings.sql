-- Takes an instant. Deletes firings that were over before it.
DELETE FROM schedule_firings_history WHERE finished_at < ?1
