-- Dead letters, searchable. The broker is the truth, except RabbitMQ, whose letters are kept here whole (`envelope`).

CREATE TABLE dead_letters (
    letter_id VARCHAR(600) PRIMARY KEY,
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255) NOT NULL,
    publish_seq BIGINT NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    type VARCHAR(100),
    dead_letter_queue VARCHAR(255),
    kind VARCHAR(20) NOT NULL,
    error_fingerprint VARCHAR(64),
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    errors JSONB,
    envelope BYTEA,
    dead_at TIMESTAMPTZ NOT NULL,
    number BIGINT GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX idx_dead_letters_queue ON dead_letters (queue_name, consumer_group, number);
CREATE INDEX idx_dead_letters_message_id ON dead_letters (message_id);
CREATE INDEX idx_dead_letters_fingerprint ON dead_letters (error_fingerprint, dead_at);
