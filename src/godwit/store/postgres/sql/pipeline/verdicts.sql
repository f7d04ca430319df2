-- $1 pipeline, $2 after. Returns the verdicts of an audit beyond a number, in order.
SELECT number, body, hash FROM audit_verdict WHERE pipeline = $1 AND number > $2 ORDER BY number
