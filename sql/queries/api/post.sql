-- Writes several notifications, or any number under an Idempotency-Key: see _post().
-- $1 token · $2 key or NULL · $3 SHA-256 of the body · $4 the notifications, a JSON array as text
-- Locks, index: those of _post().
SELECT p.outcome, p.ids FROM outboxd._post($1::text, $2::text, $3::bytea, $4::text::jsonb) p
