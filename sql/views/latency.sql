-- How long it takes, from the statistics.
CREATE OR REPLACE VIEW outboxd.latency AS
SELECT n.subject AS topic, n.count AS sent,
       n.p50_ms AS notify_to_sent_p50_ms, n.p95_ms AS notify_to_sent_p95_ms, n.p99_ms AS notify_to_sent_p99_ms,
       s.p50_ms AS seen_to_sent_p50_ms, s.p95_ms AS seen_to_sent_p95_ms, s.p99_ms AS seen_to_sent_p99_ms
  FROM outboxd._spans n LEFT JOIN outboxd._spans s ON s.measure = 'seen' AND s.subject = n.subject AND s.origin = n.origin
 WHERE n.measure = 'notify' AND n.subject <> '';

COMMENT ON VIEW outboxd.latency IS
    'How long notifications took that were sent in the last 5 minutes, per topic, in milliseconds, to within 9 %.';
COMMENT ON COLUMN outboxd.latency.topic IS 'What it is about; (other): of topics beyond the first 10,000 that one instance sent within two seconds.';
COMMENT ON COLUMN outboxd.latency.sent IS 'How many were sent.';
COMMENT ON COLUMN outboxd.latency.notify_to_sent_p50_ms IS
    'Half took at most this long, from notify() (or send_at, if later) until SENT was recorded, retries and waits '
    'included.';
COMMENT ON COLUMN outboxd.latency.notify_to_sent_p95_ms IS '95 of 100 took at most this long.';
COMMENT ON COLUMN outboxd.latency.notify_to_sent_p99_ms IS '99 of 100 took at most this long.';
COMMENT ON COLUMN outboxd.latency.seen_to_sent_p50_ms IS
    'Half took at most this long, from the last publication until SENT was recorded: the share of outboxd and the '
    'provider.';
COMMENT ON COLUMN outboxd.latency.seen_to_sent_p95_ms IS '95 of 100 took at most this long.';
COMMENT ON COLUMN outboxd.latency.seen_to_sent_p99_ms IS '99 of 100 took at most this long.';
