-- These publications have arrived in the queue.
-- $1 publications
-- Locks: their rows. Index: publication_pkey.
DELETE FROM outboxd.publication WHERE id = ANY ($1::bigint[])
