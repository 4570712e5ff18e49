-- These publications have arrived in the queue. Stretches are kept: they say which rows are published.
-- $1 publications
-- Locks: their rows. Index: publication_pkey.
WITH confirmed AS (
    DELETE FROM outboxd.publication WHERE id = ANY ($1::bigint[]) AND lane IS NULL
)
UPDATE outboxd.publication SET pushed_at = clock_timestamp() WHERE id = ANY ($1::bigint[]) AND lane IS NOT NULL
