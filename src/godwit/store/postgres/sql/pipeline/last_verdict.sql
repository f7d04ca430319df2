-- $1 pipeline. Returns the last verdict of an audit.
SELECT number, body, hash FROM audit_verdict WHERE pipeline = $1 ORDER BY number DESC LIMIT 1
