-- What is past its time, and why: the rows of _wait that are late. What somebody claimed or published and what is
-- ready come before what is PENDING; a condition on id is a probe.
-- Locks: none. Index: those of _wait; notification_log_pkey, one probe a row that is shown.
CREATE OR REPLACE VIEW outboxd.stuck AS
SELECT w.id, w.topic,
       (SELECT CASE WHEN outboxd._sees_all() THEN l.recipient ELSE outboxd._masked(l.recipient) END
          FROM outboxd.notification_log l WHERE l.id = w.id) AS recipient, w.reason,
       greatest(clock_timestamp() - w.since, '0') AS stuck_for, w.since, w.channel, w.attempts, w.instance AS worker,
       CASE WHEN w.reason = 'waiting behind key' THEN CASE WHEN outboxd._sees_all() THEN w.ordering_key ELSE outboxd._masked(w.ordering_key) END
       END AS ordering_key, CASE WHEN outboxd._sees_all() THEN nullif(w.origin, '') ELSE outboxd._masked_origin(nullif(w.origin, '')) END AS origin
  FROM outboxd._wait w WHERE w.is_late AND outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.stuck IS
    'What is past its time and why, every row of it: exact and a probe by id; of all add a LIMIT. What is claimed or published comes first, '
    'PENDING rows last. outboxd.waiting has the counts by reason, outboxd.why(id) the whole story of one.';
COMMENT ON COLUMN outboxd.stuck.id IS 'See outboxd.notifications.id.';
COMMENT ON COLUMN outboxd.stuck.topic IS 'What it is about.';
COMMENT ON COLUMN outboxd.stuck.recipient IS 'As the app gave it; for readers its ends.';
COMMENT ON COLUMN outboxd.stuck.reason IS
    'lease expired (5 s); published without progress (1 min); never published (10 s); never released: due, and no producer took it '
    '(10 s); waiting behind key (1 min); topic paused; no route: no running instance has one that leads its topic anywhere (5 s); '
    'channel paused; circuit open; provider asked to wait (Retry-After); at its limit: its channel, the origin that its URL '
    'names, its topic or the instances have as many calls as they may (10 s); came with a copy: of the database, see health, origin.';
COMMENT ON COLUMN outboxd.stuck.stuck_for IS 'For how long.';
COMMENT ON COLUMN outboxd.stuck.since IS 'Since when.';
COMMENT ON COLUMN outboxd.stuck.channel IS 'The channel it waits for, by the routes of the running instances; where they differ, of the one that started last.';
COMMENT ON COLUMN outboxd.stuck.attempts IS 'Calls to providers so far, all channels.';
COMMENT ON COLUMN outboxd.stuck.worker IS 'The instance that has, or had, claimed or published it (see outboxd.instances).';
COMMENT ON COLUMN outboxd.stuck.ordering_key IS
    'The key of its topic that it waits behind, if that is the reason: SELECT * FROM outboxd.notifications WHERE topic = … AND ordering_key = …';
COMMENT ON COLUMN outboxd.stuck.origin IS
    'The origin that it waits for, where its URL comes from data and it was put back for that; for readers with the ends of the host.';
