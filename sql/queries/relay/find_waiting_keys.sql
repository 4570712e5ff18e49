-- Reads the keys, topic by topic, in their order, one step down the index each, and says of each whether its head is blocked although
-- nobody has the key's turn: its admission was lost, or it committed too late for the fast path.
-- $1 after this topic and $2 this key of it · $3 keys at most
-- Locks: none. Index: outbox_key, a_key_has_at_most_one_live_row.
WITH RECURSIVE k AS (
    (SELECT o.topic, o.ordering_key, o.state FROM outboxd.outbox o
      WHERE (o.topic, o.ordering_key) > ($1::text, $2::text) AND o.ordering_key IS NOT NULL
      ORDER BY o.topic, o.ordering_key, o.seq LIMIT 1)
    UNION ALL
    SELECT n.topic, n.ordering_key, n.state FROM k CROSS JOIN LATERAL (
        SELECT o.topic, o.ordering_key, o.state FROM outboxd.outbox o
         WHERE (o.topic, o.ordering_key) > (k.topic, k.ordering_key) AND o.ordering_key IS NOT NULL
         ORDER BY o.topic, o.ordering_key, o.seq LIMIT 1) n
)
SELECT k.topic, k.ordering_key,
       k.state = 'blocked'
       AND (SELECT v.id FROM outboxd.outbox v
             WHERE v.topic = k.topic AND v.ordering_key = k.ordering_key AND v.has_turn LIMIT 1) IS NULL AS waits
  FROM k LIMIT $3::int
