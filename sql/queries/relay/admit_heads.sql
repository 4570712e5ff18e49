-- The head of each key gets its turn if no row of the key has it: blocked → ready, due at once. The unique index keeps
-- the rule: whoever loses the race (a row with a lower seq committed late and was admitted meanwhile) gets 23505 and
-- tries again.
-- Interleavings: nobody is waited for, because an operator's transaction may stay open for long. A head that somebody
-- holds is passed over (a cancel). So is a key to which somebody is giving its turn: that is not to be seen before its
-- commit, and the unique index would wait for it; an advisory lock of the key tells. Either way its next try, or the
-- sweep, admits. A stranger's hold of that lock does not count: the unique index keeps the rule without it. The rows are named by one array: a join may be planned as a scan of all that is live, for an outbox
-- that was empty then.
-- $1 topics · $2 the ordering key of each
-- Locks: an advisory lock of each key, the heads; what is locked is skipped. Index: outbox_key,
-- a_key_has_at_most_one_live_row, outbox_pkey.
UPDATE outboxd.outbox o SET state = 'ready', has_turn = true, retry_at = clock_timestamp()
 WHERE o.id = ANY (ARRAY(
       SELECT f.id
         FROM (SELECT h.id, k.topic, k.key
                 FROM (SELECT DISTINCT u.topic, u.key FROM unnest($1::text[], $2::text[]) u(topic, key)) k
                CROSS JOIN LATERAL (SELECT f.id, f.state FROM outboxd.outbox f
                                     WHERE f.topic = k.topic AND f.ordering_key = k.key
                                     ORDER BY f.topic, f.ordering_key, f.seq LIMIT 1) h
                WHERE h.state = 'blocked'
                  AND (SELECT v.id FROM outboxd.outbox v
                        WHERE v.topic = k.topic AND v.ordering_key = k.key AND v.has_turn LIMIT 1) IS NULL OFFSET 0) h
        CROSS JOIN LATERAL (SELECT f.id FROM outboxd.outbox f WHERE f.id = h.id AND f.state = 'blocked' FOR UPDATE SKIP LOCKED) f
        WHERE pg_try_advisory_xact_lock(hashtextextended('outboxd turn ' || h.key, hashtextextended(h.topic, 0)))
           OR NOT outboxd._is_held_by_us(hashtextextended('outboxd turn ' || h.key, hashtextextended(h.topic, 0)))))
   AND o.state = 'blocked'
RETURNING o.topic
