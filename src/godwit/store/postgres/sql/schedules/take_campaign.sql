-- Takes a campaign. Returns its status, locked: batches of a campaign are stored one by one, and none after it was cancelled.
SELECT status FROM campaigns WHERE name = $1 FOR UPDATE
