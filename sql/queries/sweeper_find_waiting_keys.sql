-- Keys with waiting rows and no live one: an admission that was lost.
-- $1 keys at most
-- Locks: none. Index: a_key_has_at_most_one_live_row.
SELECT DISTINCT o.ordering_key FROM outboxd.outbox o
 WHERE o.ordering_key IS NOT NULL AND o.state = 3
   AND NOT EXISTS (SELECT FROM outboxd.outbox v
                    WHERE v.ordering_key = o.ordering_key AND CASE WHEN v.live_key IS NULL THEN v.seq ELSE 0 END = 0)
 LIMIT $1::int
