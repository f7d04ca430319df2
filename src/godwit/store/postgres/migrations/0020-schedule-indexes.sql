-- A campaign's keys are found by the ids made from them, so only the campaign itself needs an index; and firings that
-- wait for another try, or for their cancelling, are few and must be found without the many.

DROP INDEX idx_schedule_firings_campaign;
CREATE INDEX idx_schedule_firings_campaign ON schedule_firings (campaign) WHERE campaign IS NOT NULL;
CREATE INDEX idx_schedule_firings_again ON schedule_firings (claimed_until) WHERE status IN ('refused', 'cancelling');
CREATE INDEX idx_schedule_firings_history_campaign ON schedule_firings_history (campaign) WHERE campaign IS NOT NULL;
