-- queue, group, publish seq. A dead letter that is dead no more.
DELETE FROM dead_letters WHERE queue_name = ? AND consumer_group = ? AND publish_seq = ?
