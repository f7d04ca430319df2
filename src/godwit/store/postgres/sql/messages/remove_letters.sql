-- $1 queues, $2 groups, $3 publish seqs. Dead letters that are dead no more.
DELETE FROM dead_letters
USING unnest($1::text[], $2::text[], $3::bigint[]) AS gone (queue_name, consumer_group, publish_seq)
WHERE
    dead_letters.queue_name = gone.queue_name
    AND dead_letters.consumer_group = gone.consumer_group
    AND dead_letters.publish_seq = gone.publish_seq
