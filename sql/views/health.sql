-- One row per check. Counts what waits like `waiting`; else it reads the snapshot, statistics and reports of the instances,
-- the statistics of the server, the ends of two partial indexes and up to 10,000 waiting events: it costs the same with any
-- backlog and history. A check that finds nothing to measure says ok, so that every check always has its row.
CREATE OR REPLACE VIEW outboxd.health AS
WITH alive AS MATERIALIZED (
    SELECT i.id, i.roles, i.host, i.queue_kind, i.fallback_since, r.clock_skew_ms, r.queue_reachable, r.queue_error, r.queue_policy,
           r.queue_memory_bytes, r.queue_memory_max_bytes, r.sessions_shared, r.files_max, r.files_wanted, r.lacked, r.lacked_calls,
           r.lacked_since, r.lacked_at
      FROM outboxd.instance i LEFT JOIN outboxd.instance_report r ON r.instance = i.id
     WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl
), carrier AS MATERIALIZED (
    SELECT c.id, c.host, c.topics FROM outboxd._carrier c
), routed AS MATERIALIZED (
    SELECT r.published, r.called FROM outboxd._routed r
), waits AS MATERIALIZED (
    SELECT w.* FROM outboxd._waits w
), line AS MATERIALIZED ( -- what waits at a limit, by channel
    SELECT w.channel, max(w.limited_by) AS limited_by, sum(w.count)::bigint AS count,
           CASE WHEN sum(w.count) < max(w.per_second) * 2592000 THEN now() + sum(w.count) / max(w.per_second) * interval '1 s' END AS ends_at
      FROM waits w WHERE w.reason = 'at its limit' GROUP BY 1
), measured AS MATERIALIZED ( -- each once, however often it is spoken of
    SELECT (SELECT now() - min(d.due_at) FROM outboxd._due d WHERE d.due_at <= now()) AS late,
           (SELECT count(*) FROM (SELECT FROM outboxd.notification_log l WHERE l.failed_at > now() - interval '1 hour'
                                   ORDER BY l.failed_at DESC LIMIT 10000) f) AS dead
), checks (ordinal, name, level, value, meaning, action) AS (
    SELECT 1, 'workers', CASE WHEN w.working = 0 THEN 2 WHEN w.dead > 0 THEN 1 ELSE 0 END,
           format('%s alive, %s calling providers; %s died within the hour', w.alive, w.working, w.dead),
           'Instances with a fresh heartbeat. Without one nothing is sent; what is committed waits safely.',
           CASE WHEN w.working = 0 THEN 'Start an instance: outboxd run'
                WHEN w.dead > 0 THEN 'SELECT * FROM outboxd.instances WHERE state = ''dead''; then look at its logs' END
      FROM (SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM alive a WHERE 'worker' = ANY (a.roles)) AS working,
                   (SELECT count(*) FROM outboxd.instance i WHERE i.stopped_at IS NULL AND i.heartbeat_at < now() - i.ttl
                       AND i.heartbeat_at > now() - interval '1 hour') AS dead) w
    UNION ALL
    SELECT 2, 'relay_lag', CASE WHEN l.oldest > interval '1 min' THEN 2 WHEN l.oldest > interval '10 s' THEN 1 ELSE 0 END,
           format('%s ready, the oldest for %s s%s', outboxd._plural(l.ready, 'row'), round(extract(epoch FROM l.oldest), 1),
                  (SELECT string_agg(format('; %s at %s of %s%s', n.count, coalesce('the ' || n.limited_by, 'a limit'), n.channel,
                                            ', until about ' || to_char(n.ends_at, 'YYYY-MM-DD HH24:MI:SS TZ')), '' ORDER BY n.count DESC, n.channel)
                     FROM (SELECT x.* FROM line x ORDER BY x.count DESC, x.channel LIMIT 3) n)),
           'Committed rows that could be in the queue and are not yet. A short wait in a burst is normal. What is paused, has no '
           'route, or waits for a circuit, its time or its channel''s limit does not count; what waits for worker.concurrency does.',
           CASE WHEN l.oldest > interval '10 s'
                THEN 'SELECT * FROM outboxd.waiting ORDER BY count DESC; '
                     || CASE WHEN l.has_few_calls THEN 'more instances or a higher worker.concurrency: their calls are all under way'
                             ELSE 'is an instance with the role relay at work? SELECT * FROM outboxd.workers' END END
      FROM (SELECT coalesce(sum(w.count) FILTER (WHERE w.is_lag), 0)::bigint AS ready,
                   greatest(clock_timestamp() - min(w.ready_since) FILTER (WHERE w.is_lag), '0') AS oldest,
                   bool_or(w.is_lag AND w.limited_by = 'concurrency') AS has_few_calls FROM waits w) l
    UNION ALL
    SELECT 3, 'overdue', CASE WHEN d.late > interval '1 min' THEN 2 WHEN d.late > interval '10 s' THEN 1 ELSE 0 END,
           CASE WHEN d.late IS NULL THEN 'nothing is due'
                ELSE format('the oldest is due since %s s', round(extract(epoch FROM d.late), 1)) END,
           'PENDING notifications whose time has come and that no producer has released.',
           CASE WHEN d.late > interval '10 s' THEN 'Start an instance with the role producer: outboxd run --role producer' END
      FROM measured d
    UNION ALL
    SELECT 4, 'dead_letters', CASE WHEN d.dead >= 1000 THEN 2 WHEN d.dead > 0 THEN 1 ELSE 0 END,
           CASE WHEN d.dead > 9999 THEN 'at least 10000' ELSE d.dead::text END || ' in the last hour',
           'Notifications that were given up: every channel of their route failed, or they expired.',
           CASE WHEN d.dead > 0
                THEN 'SELECT topic, error, count(*) FROM outboxd.dead_letters WHERE failed_at > now() - interval ''1 hour'' GROUP BY 1, 2; '
                     'once mended: SELECT * FROM outboxd.retry_where(''{"topic": "…"}'', dry_run => false)' END
      FROM measured d
    UNION ALL
    SELECT 5, 'circuits', CASE WHEN c.holding > 0 THEN 2 WHEN c.channels + c.origins > 0 OR f.names IS NOT NULL THEN 1 ELSE 0 END,
           CASE WHEN c.channels + c.origins = 0 THEN 'all closed' || coalesce(', but most calls fail by ' || f.names, '')
                ELSE format('%s: %s%s%s', concat_ws(' and ', CASE c.channels WHEN 0 THEN NULL WHEN 1 THEN '1 channel' ELSE c.channels || ' channels' END,
                                                    CASE c.origins WHEN 0 THEN NULL WHEN 1 THEN '1 single endpoint' ELSE c.origins || ' single endpoints' END),
                            n.names, CASE WHEN c.channels + c.origins > 5 THEN format('; and %s more', c.channels + c.origins - 5) END,
                            '; waits for the next notification to probe with: ' || c.idle) END,
           'Providers that failed so often in a row that they are left alone. Their work goes to the next channel of its route; '
           'it waits where there is none, where the route says so, or where the provider refuses our credentials. Once a circuit is half-open, the next '
           'notification probes the provider. A single endpoint, where the URL comes from data, holds up its own work only.',
           CASE WHEN c.channels + c.origins > 0
                THEN 'SELECT * FROM outboxd.channel_health WHERE circuit <> ''closed'' lists all, the worst first; then ask the provider, '
                     'or renew the credentials if it says 401 or 403 and restart; or SELECT outboxd.probe_channel(' || n.first || ')'
                WHEN f.names IS NOT NULL THEN 'SELECT channel, success_percent, last_error FROM outboxd.channel_health' END
      FROM (SELECT count(*) FILTER (WHERE h.origin = '') AS channels, count(*) FILTER (WHERE h.origin <> '') AS origins,
                   count(*) FILTER (WHERE h.has_work) AS holding,
                   array_to_string((array_agg(h.channel ORDER BY h.channel)
                       FILTER (WHERE h.origin = '' AND h.held_until <= now() AND NOT h.has_work))[1:5], ', ') AS idle
              FROM (SELECT s.channel, s.origin, s.held_until, s.origin = '' AND s.channel = ANY (ARRAY(
                           SELECT w.channel FROM outboxd.snapshot_held w WHERE w.origin = '')) AS has_work
                      FROM outboxd.channel_state s WHERE s.reason <> 'retry_after') h) c
           CROSS JOIN (
           SELECT string_agg(w.what, ', ' ORDER BY w.place) AS names, (array_agg(w.target ORDER BY w.place))[1] AS first
             FROM (SELECT concat_ws(', ', quote_literal(s.channel), quote_literal(nullif(s.origin, ''))) AS target,
                          row_number() OVER (ORDER BY s.origin <> '', coalesce(n.waiting, 0) DESC, s.channel COLLATE "C", s.origin COLLATE "C") AS place,
                          format('%s is %s since %s (%s)', concat_ws(' ', s.channel, nullif(s.origin, '')),
                                 CASE WHEN s.held_until > now() THEN 'open' ELSE 'half-open' END, to_char(s.since, 'YYYY-MM-DD HH24:MI:SS TZ'),
                                 concat_ws(', ', CASE s.reason WHEN 'unauthorized' THEN 'credentials refused' ELSE 'calls fail' END, n.waiting || ' waiting',
                                           CASE WHEN s.held_until > now() THEN to_char(s.held_until, '"next probe at "YYYY-MM-DD HH24:MI TZ') END)) AS what
                     FROM outboxd.channel_state s LEFT JOIN outboxd.snapshot_held n ON n.channel = s.channel AND n.origin = s.origin
                    WHERE s.reason <> 'retry_after' ORDER BY place LIMIT 5) w) n
           CROSS JOIN (
           SELECT string_agg(s.channel, ', ' ORDER BY s.channel) AS names
             FROM (SELECT s.channel FROM outboxd.statistics_channel s WHERE s.minute > now() - interval '5 min'
                    GROUP BY 1 HAVING sum(s.failed + s.unknown) > 2 AND sum(s.failed + s.unknown) > sum(s.sent)) s) f
    UNION ALL
    SELECT 6, 'paused', CASE WHEN p.names IS NULL THEN 0 ELSE 1 END, coalesce(p.names, 'nothing'),
           'Topics, channels and schedules that an operator paused; their work waits, the slots of schedules pass.',
           CASE WHEN p.names IS NOT NULL
                THEN 'SELECT outboxd.resume(''topic''), outboxd.resume_channel(''channel'') or outboxd.resume_schedule(''name'')' END
      FROM (SELECT array_to_string((array_agg(x.what ORDER BY x.what))[1:5], ', ')
                   || CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) ELSE '' END AS names
              FROM (SELECT format('topic %s since %s', t.name, to_char(t.paused_at, 'YYYY-MM-DD HH24:MI TZ')) AS what
                      FROM outboxd.topic t WHERE t.paused_at IS NOT NULL
                    UNION ALL
                    SELECT format('channel %s since %s', h.channel, to_char(h.paused_at, 'YYYY-MM-DD HH24:MI TZ'))
                      FROM outboxd.channel_state h WHERE h.paused_at IS NOT NULL
                    UNION ALL
                    SELECT format('schedule %s since %s', s.name, to_char(s.paused_at, 'YYYY-MM-DD HH24:MI TZ'))
                      FROM outboxd.schedule s WHERE s.paused_at IS NOT NULL) x) p
    UNION ALL
    SELECT 7, 'queue', CASE WHEN q.down > 0 OR q.policy <> 'noeviction' OR q.share > 0.9 OR s.count > 0 THEN 2
                             WHEN q.alone > 0 OR q.share > 0.75 THEN 1 ELSE 0 END,
           CASE WHEN s.count > 0 THEN format('%s published for over a minute, and no worker takes them; ', outboxd._plural(s.count, 'row')) ELSE '' END ||
           CASE WHEN q.reports = 0 THEN 'no instance has reported'
                WHEN q.down > 0 THEN format('%s of %s instances cannot reach Redis: %s', q.down, q.reports, q.error)
                WHEN q.alone > 0 THEN format('%s of %s instances go on without Redis, the first since %s%s', q.alone, q.reports,
                                             to_char(q.since, 'YYYY-MM-DD HH24:MI:SS TZ'), ': ' || q.error)
                WHEN q.policy IS NULL THEN 'in the process; there is no Redis'
                ELSE format('Redis answers, maxmemory-policy %s, %s used of %s', q.policy, pg_size_pretty(q.used),
                            coalesce(pg_size_pretty(q.at_most), 'no limit')) END,
           'The queue between relay and workers. Losing it costs seconds, never a message.',
           CASE WHEN q.down > 0 THEN 'Look at Redis and the network between; sending goes on by itself'
                WHEN q.alone > 0 THEN 'Look at Redis and the network between. Deliveries go on in each instance by itself, and through '
                                      'Redis as soon as it answers'
                WHEN s.count > 0 THEN 'Start an instance with the role worker and the redis_url and queue.prefix that they were published with. '
                                      'Else they are published again after reconcile.published_after'
                WHEN q.policy <> 'noeviction' THEN 'CONFIG SET maxmemory-policy noeviction'
                WHEN q.share > 0.75 THEN 'Raise maxmemory, or give outboxd a Redis of its own' END
      FROM (SELECT count(a.clock_skew_ms) AS reports, min(a.queue_error) AS error,
                   count(*) FILTER (WHERE NOT a.queue_reachable AND a.fallback_since IS NULL) AS down,
                   count(a.fallback_since) AS alone, min(a.fallback_since) AS since,
                   min(a.queue_policy) AS policy, max(a.queue_memory_bytes) AS used, max(nullif(a.queue_memory_max_bytes, 0)) AS at_most,
                   max(a.queue_memory_bytes::numeric / nullif(a.queue_memory_max_bytes, 0)) AS share FROM alive a) q
     CROSS JOIN (SELECT sum(w.count)::bigint AS count FROM waits w WHERE w.reason = 'published without progress') s
    UNION ALL
    SELECT 8, 'vacuum_pin', CASE WHEN v.held_for > interval '1 hour' OR v.age_xids > 10000000 THEN 2
                                 WHEN v.held_for > interval '5 min' OR v.age_xids > 1000000 THEN 1 ELSE 0 END,
           CASE WHEN v.who IS NULL THEN 'nothing'
                ELSE format('%s: %s transactions old%s%s', v.who, v.age_xids,
                            ', open for ' || round(extract(epoch FROM v.held_for)) || ' s',
                            ', last query at ' || to_char(v.query_start, 'YYYY-MM-DD HH24:MI:SS TZ')) END,
           'The oldest snapshot in this database. Dead rows younger than it cannot be removed, so tables and indexes grow and '
           'scans slow down.',
           CASE WHEN v.held_for > interval '5 min' OR v.age_xids > 1000000 THEN v.remedy END
      FROM (SELECT 1) one LEFT JOIN LATERAL (
           SELECT * FROM outboxd._vacuum_pins p ORDER BY p.age_xids DESC NULLS LAST, p.held_for DESC NULLS LAST LIMIT 1) v ON true
    UNION ALL
    SELECT 9, 'autovacuum', CASE WHEN t.share > 5 THEN 2 WHEN t.share > 1 THEN 1 ELSE 0 END,
           CASE WHEN t.name IS NULL THEN 'no table is behind'
                ELSE format('%s: %s dead rows to %s live, last vacuumed %s', t.name, t.dead, t.live,
                            coalesce(to_char(t.vacuumed, 'YYYY-MM-DD HH24:MI TZ'), 'never')) END,
           'Tables of outboxd whose dead rows autovacuum has not removed: more than the live ones plus 100,000.',
           CASE WHEN t.share > 1
                THEN format('See vacuum_pin first; then VACUUM outboxd.%I, and raise autovacuum_max_workers or its cost limit', t.name) END
      FROM (SELECT 1) one LEFT JOIN LATERAL (
           SELECT c.relname AS name, s.dead, s.live, s.dead / (s.live + 100000.0) AS share,
                  greatest(pg_stat_get_last_autovacuum_time(c.oid), pg_stat_get_last_vacuum_time(c.oid)) AS vacuumed
             FROM pg_class c CROSS JOIN LATERAL (SELECT pg_stat_get_dead_tuples(c.oid) AS dead, pg_stat_get_live_tuples(c.oid) AS live) s
            WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'outboxd') AND c.relkind = 'r' AND s.dead > 10000
            ORDER BY 4 DESC LIMIT 1) t ON true
    UNION ALL
    SELECT 10, 'replication_slots', CASE WHEN s.held > 10737418240 OR s.wal_status IN ('unreserved', 'lost') THEN 2
                                         WHEN s.held > 1073741824 THEN 1 ELSE 0 END,
           CASE WHEN s.slot_name IS NULL THEN 'no slot'
                ELSE format('%s%s holds %s of WAL (%s)', s.slot_name, CASE WHEN s.active THEN '' ELSE ', inactive,' END,
                            pg_size_pretty(s.held), s.wal_status) END,
           'Replication slots make the server keep WAL until their reader has it; a forgotten one fills the disk.',
           CASE WHEN s.held > 1073741824 OR s.wal_status IN ('unreserved', 'lost')
                THEN format('Let its reader catch up, or SELECT pg_drop_replication_slot(%L); max_slot_wal_keep_size sets a limit',
                            s.slot_name) END
      FROM (SELECT 1) one LEFT JOIN LATERAL (
           SELECT r.slot_name, r.active, r.wal_status,
                  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                                  r.restart_lsn) AS held
             FROM pg_replication_slots r
            ORDER BY r.wal_status IN ('unreserved', 'lost') DESC NULLS LAST, 4 DESC NULLS LAST LIMIT 1) s ON true
    UNION ALL
    SELECT 11, 'clock_skew', CASE WHEN c.ms > 60000 THEN 2 WHEN c.ms > 1000 THEN 1 ELSE 0 END,
           CASE WHEN c.ms IS NULL THEN 'no instance has reported' ELSE format('%s ms on %s', c.ms, c.host) END,
           'The largest difference between an instance''s clock and the database''s. Leases and due times go by the database; '
           'signatures and logs carry the instance''s time.',
           CASE WHEN c.ms > 1000 THEN 'Synchronise the clocks (NTP)' END
      FROM (SELECT 1) one LEFT JOIN LATERAL (
           SELECT abs(a.clock_skew_ms) AS ms, a.host FROM alive a WHERE a.clock_skew_ms IS NOT NULL ORDER BY 1 DESC LIMIT 1) c ON true
    UNION ALL
    SELECT 12, 'bulk_actions', CASE WHEN b.failing > 0 THEN 1 ELSE 0 END,
           CASE WHEN b.running = 0 THEN 'none is running' ELSE format('%s running, %s of them with an error', b.running, b.failing) END,
           'Retries and cancels of many notifications, worked off in batches.',
           CASE WHEN b.failing > 0
                THEN 'SELECT * FROM outboxd.bulk_actions WHERE error IS NOT NULL; outboxd.stop_bulk(id) ends one' END
      FROM (SELECT count(*) AS running, count(*) FILTER (WHERE a.error IS NOT NULL) AS failing
              FROM outboxd.bulk_action a WHERE a.ended_at IS NULL) b
    UNION ALL
    SELECT 13, 'schedules', CASE WHEN s.invalid + s.failed > 0 THEN 2 WHEN s.missed > 0 THEN 1 ELSE 0 END,
           CASE WHEN s.schedules = 0 THEN 'none' WHEN s.bad IS NULL THEN format('%s, all well', s.schedules)
                ELSE format('%s invalid, %s failed, %s missed their last slot: %s', s.invalid, s.failed, s.missed, s.bad) END,
           'Schedules that cannot run, or whose last slot failed or passed while nobody ran.',
           CASE WHEN s.bad IS NOT NULL
                THEN 'SELECT name, state, last_slot, last_state, error FROM outboxd.schedules; then outboxd.alter_schedule(…)' END
      FROM (SELECT count(*) AS schedules, count(*) FILTER (WHERE c.state = 'invalid') AS invalid,
                   count(*) FILTER (WHERE c.state <> 'invalid' AND c.last_state = 'failed') AS failed,
                   count(*) FILTER (WHERE c.state <> 'invalid' AND c.last_state = 'missed') AS missed,
                   array_to_string((array_agg(c.name ORDER BY c.name)
                       FILTER (WHERE c.state = 'invalid' OR c.last_state IN ('failed', 'missed')))[1:5], ', ') AS bad
              FROM outboxd.schedules c) s
    UNION ALL
    SELECT 14, 'routes', coalesce(r.level, 0), coalesce('no route for ' || r.names, 'every topic with work or a schedule has one'),
           'Topics with work, or of a schedule, that no route of a running instance leads anywhere; what they have waits for an '
           'instance that has one.',
           CASE WHEN r.level > 0 THEN 'Add [routes.TOPIC] or [routes.default] to the configuration of every instance and restart' END
      FROM (SELECT max(w.level) AS level, string_agg(w.what, ', ' ORDER BY w.what)
                   || CASE WHEN max(w.of) > 5 THEN format(' and %s more', max(w.of) - 5) ELSE '' END AS names
              FROM (SELECT CASE WHEN i.is_stuck AND t.waiting > 0 THEN 2 ELSE 1 END AS level, count(*) OVER () AS of,
                           format('%s (%s)%s', t.topic, concat_ws(', ', CASE WHEN t.waiting > 0 THEN t.waiting || ' waiting' END,
                                                                  'schedule ' || t.schedules),
                                  CASE WHEN i.lacking < i.instances
                                       THEN format(' on %s of %s instances: %s', i.lacking, i.instances, i.names) END) AS what
                      FROM (SELECT n.topic, sum(n.count) AS waiting, string_agg(n.schedule, ', ' ORDER BY n.schedule) AS schedules
                              FROM (SELECT c.topic, c.count, NULL AS schedule FROM outboxd.snapshot_count c WHERE c.status = 'QUEUED'
                                    UNION ALL
                                    SELECT s.topic, 0, s.name FROM outboxd.schedule s) n GROUP BY 1) t
                     CROSS JOIN LATERAL (
                           SELECT count(l.topics) AS instances, count(*) FILTER (WHERE l.lacks) AS lacking,
                                  -- Nobody publishes it, or nobody calls for it.
                                  (SELECT NOT r.published && ARRAY[t.topic, 'default'] OR NOT r.called && ARRAY[t.topic, 'default'] FROM routed r) AS is_stuck,
                                  array_to_string((array_agg(format('%s on %s', l.id, l.host) ORDER BY l.id) FILTER (WHERE l.lacks))[1:5], ', ') AS names
                             FROM (SELECT c.id, c.host, c.topics, coalesce(NOT c.topics && ARRAY[t.topic, 'default'], false) AS lacks
                                     FROM carrier c) l) i
                     WHERE i.lacking > 0 ORDER BY 1 DESC, t.topic LIMIT 5) w) r
    UNION ALL
    SELECT 15, 'events', CASE WHEN e.waits > interval '5 min' THEN 2 WHEN e.waits > interval '30 s' THEN 1 ELSE 0 END,
           CASE WHEN e.waits IS NOT NULL THEN format('%s wait, the oldest for %s s', CASE WHEN e.events > 9999 THEN 'at least 10000'
                                                      ELSE e.events::text END, round(extract(epoch FROM e.waits), 1))
                ELSE 'none waits' END || CASE WHEN e.without_redis THEN '; no running instance has Redis' ELSE '' END,
           'Events of publish() that are not yet in the Redis stream of their topic. They wait safely.',
           CASE WHEN e.waits > interval '30 s' THEN CASE WHEN e.without_redis
                THEN 'Set redis_url (REDIS_URL): events travel by Redis streams only'
                ELSE 'SELECT * FROM outboxd.events_waiting; look at Redis and the log of an instance with the role relay' END END
      FROM (SELECT clock_timestamp() - w.since AS waits, w.events,
                   EXISTS (SELECT FROM alive) AND NOT EXISTS (SELECT FROM alive a WHERE a.queue_kind <> 'memory') AS without_redis
              FROM (SELECT least((SELECT o.since FROM outboxd.event_outbox o ORDER BY o.seq LIMIT 1), min(p.since)) AS since,
                           (SELECT count(*) FROM (SELECT FROM outboxd.event_outbox LIMIT 10000) o)
                           + coalesce(sum(cardinality(p.event_ids)), 0) AS events
                      FROM (SELECT p.since, p.event_ids FROM outboxd.event_publication p
                             WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g) ORDER BY p.number LIMIT 500) p) w) e
    UNION ALL
    SELECT 16, 'event_streams', CASE WHEN p.lost_at > now() - interval '1 hour' OR p.is_restoring THEN 1 ELSE 0 END,
           CASE WHEN p.lost_at IS NULL THEN 'nothing was lost'
                WHEN p.is_restoring THEN format('lost events at %s; %s are back, more to come', to_char(p.lost_at, 'YYYY-MM-DD HH24:MI:SS TZ'), p.restored)
                ELSE format('lost events at %s; %s were appended again until %s', to_char(p.lost_at, 'YYYY-MM-DD HH24:MI:SS TZ'), p.restored,
                            to_char(p.restored_at, 'YYYY-MM-DD HH24:MI:SS TZ')) END,
           'Whether Redis lost events that it had (FLUSHALL, a restart without persistence, a failover). They are appended again '
           'from Postgres, in order, as far as the streams keep them.',
           CASE WHEN p.lost_at > now() - interval '1 hour' OR p.is_restoring
                THEN 'Look at the persistence of Redis (appendonly); consumers that use receive() need nothing, but their groups may '
                     'have to be created again, from 0' END
      FROM (SELECT g.*, g.lost_at IS NOT NULL AND g.restored_at IS NULL AS is_restoring FROM outboxd.event_progress g) p
    UNION ALL
    SELECT 17, 'event_consumers', CASE WHEN c.cut > 0 THEN 2 WHEN c.late > 0 THEN 1 ELSE 0 END,
           CASE WHEN c.cut > 0 THEN format('%s of %s groups %s events: %s on %s lacks %s', c.cut, c.groups, CASE WHEN c.cut = 1 THEN 'lacks' ELSE 'lack' END, w.name, w.topic, w.cut_events)
                WHEN w.name IS NULL THEN 'no consumer group'
                ELSE format('%s groups; %s on %s is %s behind, its stream keeps about %s', c.groups, w.name, w.topic, w.behind, w.stream_max) END,
           'Consumer groups of event streams. One that falls behind by more than its stream keeps does not get what was dropped.',
           CASE WHEN c.cut > 0 AND w.cut_from IS NULL THEN 'What it lacks is no longer kept; raise events.stream_max and retention.events'
                WHEN c.cut > 0 THEN format('SELECT outboxd.replay_events(%L, %L) appends it again', w.topic, w.cut_from)
                WHEN c.late > 0 THEN 'SELECT * FROM outboxd.event_consumers; look at the consumer, or raise events.stream_max' END
      FROM (SELECT count(*) AS groups, count(g.cut_at) AS cut, count(*) FILTER (WHERE g.behind >= g.stream_max * 0.8) AS late
              FROM outboxd.event_group g WHERE g.cut_at IS NOT NULL OR g.seen_at > now() - interval '10 min') c
      LEFT JOIN LATERAL (SELECT g.* FROM outboxd.event_group g WHERE g.cut_at IS NOT NULL OR g.seen_at > now() - interval '10 min'
                          ORDER BY g.cut_at IS NULL, g.behind::numeric / g.stream_max DESC, g.topic, g.name LIMIT 1) w ON true
    UNION ALL
    SELECT 18, 'pooler', CASE WHEN p.hosts IS NULL THEN 0 ELSE 2 END,
           coalesce('in transaction mode, and not mentioned: ' || p.hosts, 'none that an instance does not know of'),
           'A transaction-mode pooler (PgBouncer) before Postgres. One that the configuration does not mention mixes the '
           'settings of sessions and takes LISTEN away.',
           CASE WHEN p.hosts IS NOT NULL
                THEN 'Set database.pooler = true (OUTBOXD_DATABASE_POOLER=true) and restart, or connect directly' END
      FROM (SELECT string_agg(DISTINCT a.host, ', ') AS hosts FROM alive a WHERE a.sessions_shared) p
    UNION ALL
    SELECT 19, 'descriptors', CASE WHEN f.lacked_at > now() - interval '1 min' AND f.lacked <> 'LOOKUPS' THEN 2
                                   WHEN f.lacked_at > now() - interval '1 hour' OR f.files_max < f.files_wanted THEN 1 ELSE 0 END,
           CASE WHEN f.id IS NULL THEN 'no instance has reported'
                WHEN f.lacked_at > now() - interval '1 hour'
                THEN format('%s (%s) on %s of %s instances: %s calls went back since %s, the last at %s; first %s on %s', f.lacked,
                            CASE f.lacked WHEN 'EMFILE' THEN 'too many open files in the process'
                                          WHEN 'ENFILE' THEN 'too many open files on the machine'
                                          WHEN 'ENOBUFS' THEN 'no network buffers' WHEN 'ENOMEM' THEN 'no memory in the kernel'
                                          WHEN 'LOOKUPS' THEN 'as many names are being looked up as may be'
                                          ELSE 'no port left to connect from' END,
                            f.lacking, f.instances, f.calls, to_char(f.first, 'YYYY-MM-DD HH24:MI:SS TZ'),
                            to_char(f.lacked_at, 'YYYY-MM-DD HH24:MI:SS TZ'), f.id, f.host)
                WHEN f.files_max < f.files_wanted
                THEN format('%s open files on %s of %s instances, which may use %s; first %s on %s', f.files_max, f.small, f.instances,
                            f.files_wanted, f.id, f.host)
                ELSE format('%s open files or more, enough for worker.concurrency', f.files_max) END,
           'Open files, ports and buffers of the instances, and names that are looked up: a connection takes one. When a call lacks one it goes back and is '
           'made later; it uses up no attempt, and no provider is blamed.',
           CASE WHEN f.lacked_at > now() - interval '1 hour' AND f.lacked <> 'EMFILE'
                THEN CASE f.lacked WHEN 'ENFILE' THEN 'Raise fs.file-max of that machine (sysctl)'
                                   WHEN 'EADDRNOTAVAIL' THEN 'Widen net.ipv4.ip_local_port_range of that machine (sysctl), or lower worker.concurrency'
                                   WHEN 'LOOKUPS' THEN 'Look at the name server of that machine, and for notifications to hosts whose own name servers do not answer'
                                   ELSE 'Give that machine more memory, or lower worker.concurrency' END
                WHEN f.lacked_at > now() - interval '1 hour' OR f.files_max < f.files_wanted
                THEN format('Raise the limit on open files to %s or more (LimitNOFILE= of systemd, ulimit -n, --ulimit nofile= of a '
                            'container) and restart, or lower worker.concurrency', f.files_wanted) END
      FROM (SELECT 1) one LEFT JOIN LATERAL (
           SELECT a.id, a.host, a.files_max, a.files_wanted, a.lacked, a.lacked_at, count(*) OVER () AS instances,
                  count(*) FILTER (WHERE a.lacked_at > now() - interval '1 hour') OVER () AS lacking,
                  count(*) FILTER (WHERE a.files_max < a.files_wanted) OVER () AS small,
                  sum(a.lacked_calls) FILTER (WHERE a.lacked_at > now() - interval '1 hour') OVER () AS calls,
                  min(a.lacked_since) FILTER (WHERE a.lacked_at > now() - interval '1 hour') OVER () AS first
             FROM alive a WHERE a.files_max IS NOT NULL
            ORDER BY CASE WHEN a.lacked_at > now() - interval '1 hour' THEN a.lacked_at END DESC NULLS LAST, a.files_max - a.files_wanted LIMIT 1) f ON true
    UNION ALL
    SELECT 20, 'origin', CASE o.phase WHEN 'own' THEN 0 WHEN 'setting aside' THEN 2 WHEN 'waiting' THEN 2 ELSE 1 END,
           CASE WHEN o.phase = 'own' THEN 'this is the database that the installation lives in'
                WHEN o.phase IN ('returning', 'canceling')
                THEN format('adopted as %s: %s of %s', o.adopted_as, CASE o.phase WHEN 'returning' THEN 'the backlog goes on' ELSE 'the backlog is being canceled' END, n.rows)
                ELSE format('copied or moved here, noticed at %s: %s and %s that came with it wait', to_char(o.noticed_at, 'YYYY-MM-DD HH24:MI:SS TZ'), n.rows,
                            CASE n.schedules WHEN 1 THEN '1 schedule' ELSE n.schedules || ' schedules' END) END,
           'Whether this is the database that the installation lives in, by the server''s identifier and the database''s oid. In a copy, '
           'or after a move or an upgrade of the server, what it brought waits until somebody says whose it is, events too; notifications '
           'written since go out.',
           CASE WHEN o.phase IN ('setting aside', 'waiting')
                THEN 'The same installation, moved or upgraded: outboxd adopt --same. A clone, whose original goes on elsewhere: outboxd adopt --new '
                     'cancels what came with it. In SQL: SELECT * FROM outboxd.adopt(''same'')' END
      FROM outboxd.origin o CROSS JOIN LATERAL (
           SELECT CASE WHEN count(*) > 100000 THEN 'more than 100000 notifications' WHEN count(*) = 1 THEN '1 notification' ELSE count(*) || ' notifications' END AS rows,
                  (SELECT count(*) FROM outboxd.schedule s WHERE s.id <= o.schedules_through AND s.paused_at IS NULL) AS schedules
             FROM (SELECT FROM outboxd.copied LIMIT 100001) c) n
)
SELECT c.name, (ARRAY['ok', 'warn', 'critical'])[coalesce(c.level, 0) + 1] AS level, c.value, c.meaning, c.action
  FROM checks c ORDER BY c.ordinal;

COMMENT ON VIEW outboxd.health IS
    'One row per check: is it well, what was measured, what does it mean, what to do. Says more to members of '
    'pg_read_all_stats.';
COMMENT ON COLUMN outboxd.health.name IS 'The check.';
COMMENT ON COLUMN outboxd.health.level IS 'ok, warn or critical.';
COMMENT ON COLUMN outboxd.health.value IS 'What was measured.';
COMMENT ON COLUMN outboxd.health.meaning IS 'What that says.';
COMMENT ON COLUMN outboxd.health.action IS 'What to do, as SQL or a setting; NULL: nothing.';
