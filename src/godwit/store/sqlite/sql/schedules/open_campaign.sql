-- Takes a campaign. Stores it when it is new.
INSERT INTO campaigns (name) VALUES (?1) ON CONFLICT (name) DO NOTHING
