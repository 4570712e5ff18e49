-- Keys with waiting rows and no live one: an admission that was lost.
-- $1 keys at most
-- Locks: none. Index: outbox_key, a_key_has_at_most_one_live_row.
SELECT DISTINCT o.ordering_key FROM outboxd.outbox o
 WHERE o.ordering_key IS NOT NULL AND o.state = 3
   AND NOT EXISTS (SELECT FROM outboxd.outbox v WHERE v.live_key = o.ordering_key)
 LIMIT $1::int
