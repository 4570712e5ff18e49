-- Gives the head of each key its turn if no row of the key has it, for operators' actions. A key belongs to its topic,
-- which stands at the same place of the other array. The relay does the same by
-- relay/admit_heads, which says what may happen. Whoever loses the race gets a unique violation and tries again: a
-- lower row was admitted meanwhile.
-- Locks: an advisory lock of each key, unless a stranger holds it; the heads; what is locked is skipped. Index: outbox_key,
-- a_key_has_at_most_one_live_row.
CREATE OR REPLACE FUNCTION outboxd._admit(topics text[], keys text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR attempt IN 1..10 LOOP
        BEGIN
            UPDATE outboxd.outbox o SET state = 'ready', has_turn = true, retry_at = clock_timestamp()
             WHERE o.id = ANY (ARRAY(
                   SELECT f.id
                     FROM (SELECT h.id, k.topic, k.key
                             FROM (SELECT DISTINCT u.topic, u.key FROM unnest(topics, keys) u(topic, key) WHERE u.key IS NOT NULL) k
                            CROSS JOIN LATERAL (SELECT f.id, f.state FROM outboxd.outbox f
                                                 WHERE f.topic = k.topic AND f.ordering_key = k.key
                                                 ORDER BY f.topic, f.ordering_key, f.seq LIMIT 1) h
                            WHERE h.state = 'blocked'
                              AND (SELECT v.id FROM outboxd.outbox v
                                    WHERE v.topic = k.topic AND v.ordering_key = k.key AND v.has_turn LIMIT 1) IS NULL
                           OFFSET 0) h
                    CROSS JOIN LATERAL (SELECT f.id FROM outboxd.outbox f
                                         WHERE f.id = h.id AND f.state = 'blocked' FOR UPDATE SKIP LOCKED) f
                    WHERE pg_try_advisory_xact_lock(hashtextextended('outboxd turn ' || h.key, hashtextextended(h.topic, 0)))
                       OR NOT outboxd._is_held_by_us(hashtextextended('outboxd turn ' || h.key, hashtextextended(h.topic, 0)))))
               AND o.state = 'blocked';
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL; -- try again; after ten losses the sweep admits
        END;
    END LOOP;
END $$;
