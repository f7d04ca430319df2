-- Messages that share an ordering key leave the outbox in their order: a later one waits while an earlier one does.

ALTER TABLE outbox ADD COLUMN ordering_key TEXT;
CREATE INDEX idx_outbox_ordering_key ON outbox (queue_name, ordering_key, number) WHERE ordering_key IS NOT NULL;
