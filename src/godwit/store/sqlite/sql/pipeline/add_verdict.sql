-- :pipeline, :number, :body, :hash. Adds a verdict; nothing when there is one of that number.
INSERT INTO audit_verdict (pipeline, number, body, hash) VALUES (:pipeline, :number, :body, :hash)
ON CONFLICT (pipeline, number) DO NOTHING
