-- What an audit covers, published with its position, and its verdicts, each with the hash of the one before.

CREATE TABLE pipeline_state (
    pipeline VARCHAR(255) PRIMARY KEY,
    state BYTEA NOT NULL
);

CREATE TABLE audit_verdict (
    pipeline VARCHAR(255) NOT NULL,
    number BIGINT NOT NULL,
    body BYTEA NOT NULL,
    hash VARCHAR(64) NOT NULL,
    PRIMARY KEY (pipeline, number)
);
