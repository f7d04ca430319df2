-- Takes a campaign. Returns whether it has never had a firing.
SELECT NOT EXISTS (SELECT 1 FROM schedule_firings WHERE campaign = ?1)
    AND NOT EXISTS (SELECT 1 FROM schedule_firings_history WHERE campaign = ?1)
