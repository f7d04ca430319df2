-- $1 ids of messages whose copies changed. Makes those that are still open as far as their least finished copy.
UPDATE queue_messages message
SET
    status = godwit_ranked(rest.rank),
    retry_count = greatest(message.retry_count, rest.retry_count),
    updated_at = greatest(message.updated_at, rest.updated_at)
FROM (
    SELECT
        open.message_id,
        min(godwit_rank(open.status)) AS rank,
        max(open.retry_count) AS retry_count,
        max(open.updated_at) AS updated_at
    FROM unnest($1::text[]) AS changed (message_id)
    JOIN queue_deliveries open ON open.message_id = changed.message_id
    GROUP BY open.message_id
) AS rest
WHERE message.message_id = rest.message_id
