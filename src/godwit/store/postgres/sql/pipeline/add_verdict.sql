-- $1 pipeline, $2 number, $3 body, $4 hash. Adds a verdict; nothing when there is one of that number.
INSERT INTO audit_verdict (pipeline, number, body, hash) VALUES ($1, $2, $3, $4)
ON CONFLICT (pipeline, number) DO NOTHING
RETURNING number
