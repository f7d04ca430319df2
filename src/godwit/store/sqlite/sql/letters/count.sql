-- Returns how many letters each group has.
SELECT queue_name, consumer_group, count(*) AS letters FROM kept_letters GROUP BY queue_name, consumer_group
