-- The head of each key gets its turn if no row of the key has it: blocked → ready, due at once. The unique index keeps the
-- rule: whoever loses the race (a row with a lower seq committed late and was admitted meanwhile) gets 23505 and looks
-- again.
-- $1 ordering keys
-- Locks: the heads, in the order of their keys. Index: outbox_key, a_key_has_at_most_one_live_row, outbox_pkey.
UPDATE outboxd.outbox o SET state = 'ready', has_turn = true, retry_at = clock_timestamp()
  FROM (SELECT h.id FROM (SELECT DISTINCT u AS key FROM unnest($1::text[]) u ORDER BY 1) k
         CROSS JOIN LATERAL (SELECT f.id, f.state FROM outboxd.outbox f WHERE f.ordering_key = k.key
                              ORDER BY f.ordering_key, f.seq LIMIT 1) h
         WHERE h.state = 'blocked'
           AND (SELECT v.id FROM outboxd.outbox v WHERE v.ordering_key = k.key AND v.has_turn LIMIT 1) IS NULL) h
 WHERE o.id = h.id AND o.state = 'blocked'
RETURNING o.topic
