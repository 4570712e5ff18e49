-- Rows that wait for a time get their timers. Apart from V0022, so that no write waits for it: there may be many.
INSERT INTO outboxd.timer (at, id) SELECT o.retry_at, o.id FROM outboxd.outbox o WHERE o.retry_at IS NOT NULL ON CONFLICT DO NOTHING;
