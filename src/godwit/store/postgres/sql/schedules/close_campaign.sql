-- Takes a campaign. Lets it take no more; makes one of that name when there is none.
INSERT INTO campaigns (name, status) VALUES ($1, 'cancelled')
ON CONFLICT (name) DO UPDATE SET status = 'cancelled', updated_at = now()
