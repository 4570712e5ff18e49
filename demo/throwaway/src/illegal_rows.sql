-- Rows that outboxd's own statements must never write, with the rule each breaks. Holds at any moment.
SELECT l.id, format('notification %s: %s', l.id, r.rule) FROM outboxd.notification_log l CROSS JOIN LATERAL (SELECT CASE
    WHEN (l.status > 'QUEUED') <> (l.finished_at IS NOT NULL) THEN 'ended rows and only they have finished_at'
    WHEN l.failed_at IS DISTINCT FROM CASE WHEN l.status = 'FAILED' THEN l.finished_at END
        THEN 'failed rows and only they have failed_at, their end'
    WHEN l.status = 'FAILED' AND l.error IS NULL THEN 'failed rows have an error'
    WHEN (l.status = 'QUEUED') <> EXISTS (SELECT FROM outboxd.outbox o WHERE o.id = l.id)
        THEN 'QUEUED rows and only they have work'
END AS rule) r WHERE r.rule IS NOT NULL
UNION ALL
SELECT o.id, format('work %s: %s', o.id, r.rule) FROM outboxd.outbox o CROSS JOIN LATERAL (SELECT CASE
    WHEN NOT EXISTS (SELECT FROM outboxd.notification_log l WHERE l.id = o.id AND l.topic = o.topic)
        THEN 'work has its record'
    WHEN o.state = 'processing' AND (o.instance IS NULL OR o.lease_until IS NULL)
        THEN 'processing rows have a worker and a lease'
    WHEN o.state = 'published' AND o.published_at IS NULL THEN 'published rows tell since when'
    WHEN o.state <> 'ready' AND o.retry_at IS NOT NULL THEN 'only ready rows wait for a time'
    WHEN o.state = 'blocked' AND o.ordering_key IS NULL THEN 'only rows with a key wait behind it'
    WHEN o.has_turn <> (o.ordering_key IS NOT NULL AND o.state <> 'blocked')
        THEN 'rows with a key that are not blocked have its turn'
    WHEN o.state = 'ready' AND o.ordering_key IS NOT NULL AND o.retry_at IS NULL
        THEN 'heads of keys are found by their time'
END AS rule) r WHERE r.rule IS NOT NULL
