-- Takes a campaign. Returns its row and how many of its firings wait.
SELECT campaigns.*, (SELECT count(*) FROM schedule_firings WHERE campaign = $1) AS waiting
FROM campaigns
WHERE name = $1
