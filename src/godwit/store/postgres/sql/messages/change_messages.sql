-- $1 ids of messages whose copies changed. Makes those that are still open as far as their least finished copy.
UPDATE queue_messages message
SET
    status = godwit_ranked(rest.rank),
    retry_count = greatest(message.retry_count, rest.retry_count),
    updated_at = greatest(message.updated_at, rest.updated_at)
FROM (
    SELECT
        message_id,
        min(godwit_rank(status)) AS rank,
        max(retry_count) AS retry_count,
        max(updated_at) AS updated_at
    FROM queue_deliveries
    WHERE message_id = ANY ($1::text[])
    GROUP BY message_id
) AS rest
WHERE message.message_id = rest.message_id
