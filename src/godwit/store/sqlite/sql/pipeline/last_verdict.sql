-- :pipeline. Returns the last verdict of an audit.
SELECT number, body, hash FROM audit_verdict WHERE pipeline = :pipeline ORDER BY number DESC LIMIT 1
