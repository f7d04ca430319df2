-- The time of a day that the queue's journal covers: the first and the last minute with a row in it.
ALTER TABLE queue_analytics ADD COLUMN covered_from INTEGER;
ALTER TABLE queue_analytics ADD COLUMN covered_until INTEGER;
