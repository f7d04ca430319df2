-- Takes an id and a time. Returns the id when nobody has claimed that firing.
UPDATE schedule_firings SET deliver_at = ?2, fire_at = ?2
WHERE id = ?1 AND status IN ('created', 'paused', 'refused')
RETURNING id
