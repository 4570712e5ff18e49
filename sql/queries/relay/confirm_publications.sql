-- These publications have arrived in the queue.
-- Interleavings: one that a sweep recalled meanwhile is gone already; its rows are published again under the same
-- epoch, and the claim takes one of the two.
-- $1 publications
-- Locks: their rows. Index: publication_pkey.
DELETE FROM outboxd.publication WHERE id = ANY ($1::bigint[])
