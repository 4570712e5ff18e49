-- Writes one notification; its id. Whatever notify() refuses, the caller is told in its words.
-- $1 topic · $2 recipient · $3 payload, JSON as text · $4 send_at · $5 dedup_key · $6 ordering_key · $7 expires_at
-- $8 headers, JSON as text
-- Locks: new rows only; with a dedup_key that another transaction is writing, that one. Index: notification_log_dedup.
SELECT outboxd.notify($1::text, $2::text, $3::text::jsonb, $4::timestamptz, $5::text, $6::text, $7::timestamptz,
                      $8::text::jsonb)
