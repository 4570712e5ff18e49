-- Counts and writes it down, if it is time: every 5 s, more rarely if a count takes long, every 20 s at the latest. Any number of
-- instances may call it; one counts. Returns whether this call did.
-- Locks: the one row of snapshot, skipped if another holds it. Index: see _count_active(), _count_waiting().
CREATE OR REPLACE FUNCTION outboxd._take_snapshot() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began timestamptz := clock_timestamp();
    is_large boolean;
BEGIN
    PERFORM 1 FROM outboxd.snapshot c WHERE c.taken_at < began - least(greatest(interval '5 s', c.cost * 20), '20 s') FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The daemon's sessions avoid sequential scans; what _count_active() reads whole is best read by one.
    PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true);
    DELETE FROM outboxd.snapshot_count;
    INSERT INTO outboxd.snapshot_count (topic, status, count, oldest_since)
    SELECT n.topic, n.status, n.count, n.oldest_since FROM outboxd._count_active() n;
    DELETE FROM outboxd.snapshot_waiting;
    INSERT INTO outboxd.snapshot_waiting (reason, topic, channel, origin, limited_by, per_second, is_lag, count, waits_since, ready_since)
    SELECT n.reason, n.topic, n.channel, h.origin, n.limited_by, n.per_second, n.is_lag, n.count, n.waits_since, n.ready_since
      FROM outboxd._count_waiting() n LEFT JOIN outboxd.channel_state h ON h.ctid = n.held;
    UPDATE outboxd.snapshot c SET taken_at = began, cost = clock_timestamp() - began, ready = r.ready, ready_since = r.ready_since,
           rows = n.rows, is_large = n.rows > 3000 OR n.topics > 500 OR n.done > 20000
      FROM (SELECT coalesce(sum(w.count), 0) AS ready, min(w.ready_since) AS ready_since FROM outboxd.snapshot_waiting w WHERE w.is_lag) r,
           (SELECT coalesce(sum(s.count), 0) + (SELECT coalesce(sum(w.count), 0) FROM outboxd.snapshot_waiting w WHERE w.reason = 'came with a copy') AS rows,
                    count(DISTINCT s.topic) AS topics,
                   (SELECT count(*) FROM (SELECT FROM outboxd.statistics_topic t WHERE t.minute > now() - interval '1 hour' LIMIT 20001) t) AS done
              FROM outboxd.snapshot_count s) n
    RETURNING c.is_large INTO is_large;
    DELETE FROM outboxd.snapshot_topic;
    IF is_large THEN
        -- From here on _counts shows what was just counted.
        INSERT INTO outboxd.snapshot_topic SELECT t.* FROM outboxd._topic_counts t;
        UPDATE outboxd.snapshot c SET cost = clock_timestamp() - began;
    END IF;
    RETURN true;
END $$;
