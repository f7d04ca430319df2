-- What an audit covers, published with its position, and its verdicts, each with the hash of the one before.

CREATE TABLE pipeline_state (
    pipeline TEXT PRIMARY KEY,
    state BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_verdict (
    pipeline TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (pipeline, number)
) STRICT, WITHOUT ROWID;
