-- Takes a campaign. Returns its status.
SELECT status FROM campaigns WHERE name = ?1
