-- Takes a campaign. Returns its status, and whether it is new.
INSERT INTO campaigns (name) VALUES ($1)
ON CONFLICT (name) DO UPDATE SET updated_at = now()
RETURNING status, xmax = 0 AS fresh
