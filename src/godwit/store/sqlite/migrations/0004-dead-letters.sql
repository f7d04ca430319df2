-- Dead letters, searchable: what the journal tells of them. The broker is the truth.

CREATE TABLE dead_letters (
    queue_name TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    publish_seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    type TEXT,
    kind TEXT NOT NULL,
    error_fingerprint TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    dead_at INTEGER NOT NULL,
    PRIMARY KEY (queue_name, consumer_group, publish_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_dead_letters_message_id ON dead_letters (message_id);
CREATE INDEX idx_dead_letters_fingerprint ON dead_letters (error_fingerprint, dead_at);
CREATE INDEX idx_dead_letters_dead_at ON dead_letters (dead_at);

-- Whole letters of brokers that cannot list their own (RabbitMQ): here they are the truth.
CREATE TABLE kept_letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    letter_id TEXT NOT NULL UNIQUE,
    queue_name TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    dead_letter_queue TEXT,
    message_id TEXT NOT NULL,
    publish_seq INTEGER NOT NULL,
    type TEXT,
    kind TEXT NOT NULL,
    error_fingerprint TEXT,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    dead_at INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX idx_kept_letters_queue ON kept_letters (queue_name, consumer_group, number);
CREATE INDEX idx_kept_letters_dead_letter_queue ON kept_letters (dead_letter_queue, number)
    WHERE dead_letter_queue IS NOT NULL;
