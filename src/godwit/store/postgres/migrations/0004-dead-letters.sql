-- Dead letters, searchable: what the journal tells of them. The broker is the truth.

CREATE TABLE dead_letters (
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255) NOT NULL,
    publish_seq BIGINT NOT NULL,
    message_id VARCHAR(255) NOT NULL,
    type VARCHAR(100),
    kind VARCHAR(20) NOT NULL,
    error_fingerprint VARCHAR(64),
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    worker VARCHAR(255),
    dead_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (queue_name, consumer_group, publish_seq)
);
CREATE INDEX idx_dead_letters_message_id ON dead_letters (message_id);
CREATE INDEX idx_dead_letters_fingerprint ON dead_letters (error_fingerprint, dead_at);
CREATE INDEX idx_dead_letters_dead_at ON dead_letters (dead_at);

-- Whole letters of brokers that cannot list their own (RabbitMQ): here they are the truth.
CREATE TABLE kept_letters (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    letter_id VARCHAR(800) NOT NULL UNIQUE,
    queue_name VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(255) NOT NULL,
    dead_letter_queue VARCHAR(255),
    message_id VARCHAR(255) NOT NULL,
    publish_seq BIGINT NOT NULL,
    type VARCHAR(100),
    kind VARCHAR(20) NOT NULL,
    error_fingerprint VARCHAR(64),
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    dead_at TIMESTAMPTZ NOT NULL,
    body BYTEA NOT NULL
);
CREATE INDEX idx_kept_letters_queue ON kept_letters (queue_name, consumer_group, number);
CREATE INDEX idx_kept_letters_dead_letter_queue ON kept_letters (dead_letter_queue, number)
    WHERE dead_letter_queue IS NOT NULL;
