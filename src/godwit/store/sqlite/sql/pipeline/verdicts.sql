-- :pipeline, :after. Returns the verdicts of an audit beyond a number, in order.
SELECT number, body, hash FROM audit_verdict WHERE pipeline = :pipeline AND number > :after ORDER BY number
