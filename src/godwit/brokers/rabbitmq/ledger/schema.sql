-- The ledger of a RabbitMQ broker: what RabbitMQ cannot keep. Times are milliseconds since 1970.
-- queues.first_spec: what the server's queues were made with; it cannot be changed there.
-- letters.claimed: until when somebody who replays or moves it has it for himself.
-- copies.place: 0 waiting, 1 leased, 2 being sent (not counted yet), 3 dead and on its way through the dead letter queue.

CREATE TABLE IF NOT EXISTS queues (
  name TEXT PRIMARY KEY,
  spec BLOB NOT NULL,
  first_spec BLOB NOT NULL,
  declared INTEGER NOT NULL,
  epoch TEXT NOT NULL,
  seq INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  publish_seq INTEGER NOT NULL,
  published INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  journal_bytes INTEGER NOT NULL,
  journal_dropped INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS groups (
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  spec BLOB NOT NULL,
  declared INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  leased INTEGER NOT NULL,
  leased_bytes INTEGER NOT NULL,
  dead INTEGER NOT NULL,
  dropped INTEGER NOT NULL,
  letter_seq INTEGER NOT NULL,
  PRIMARY KEY (queue, name)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS copies (
  queue TEXT NOT NULL,
  grp TEXT NOT NULL,
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  size INTEGER NOT NULL,
  place INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  copy INTEGER NOT NULL,
  copies INTEGER NOT NULL,
  ready_at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  token TEXT,
  worker TEXT,
  lease_until INTEGER,
  leased_at INTEGER,
  origin TEXT,
  PRIMARY KEY (queue, grp, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS copies_by_id ON copies (queue, id);
CREATE INDEX IF NOT EXISTS copies_delayed ON copies (queue, grp, ready_at) WHERE place = 0;
CREATE INDEX IF NOT EXISTS copies_by_origin ON copies (queue, grp, origin) WHERE origin IS NOT NULL;

CREATE TABLE IF NOT EXISTS ids (
  queue TEXT NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ids_until ON ids (until);

CREATE TABLE IF NOT EXISTS letters (
  queue TEXT NOT NULL,
  grp TEXT NOT NULL,
  number INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  size INTEGER NOT NULL,
  claimed INTEGER NOT NULL,
  letter BLOB NOT NULL,
  PRIMARY KEY (queue, grp, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS letters_by_seq ON letters (queue, grp, seq);

CREATE TABLE IF NOT EXISTS chunks (
  queue TEXT NOT NULL,
  last_seq INTEGER NOT NULL,
  n INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  chunk BLOB NOT NULL,
  PRIMARY KEY (queue, last_seq)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS readers (
  reader TEXT NOT NULL,
  shard TEXT NOT NULL,
  epoch TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (reader, shard)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS shared (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  version INTEGER NOT NULL,
  until INTEGER
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS shared_until ON shared (until) WHERE until IS NOT NULL;

CREATE TABLE IF NOT EXISTS counters (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;

-- Queues whose clock fell behind their time (`at_ms`) at the instant `clock_ms`: see core/journal/queue_time.
CREATE TABLE IF NOT EXISTS lags (
  queue TEXT PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  clock_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
