-- Dead letters, searchable. The broker is the truth, except RabbitMQ, whose letters are kept here whole (`envelope`).

CREATE TABLE dead_letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    letter_id TEXT NOT NULL UNIQUE,
    queue_name TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    publish_seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    type TEXT,
    dead_letter_queue TEXT,
    kind TEXT NOT NULL,
    error_fingerprint TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    errors TEXT,
    envelope BLOB,
    dead_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_dead_letters_queue ON dead_letters (queue_name, consumer_group, number);
CREATE INDEX idx_dead_letters_message_id ON dead_letters (message_id);
CREATE INDEX idx_dead_letters_fingerprint ON dead_letters (error_fingerprint, dead_at);
