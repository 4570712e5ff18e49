-- Some rows of an audience, as they were read by another session. In one transaction with schedule/finish_reading: what
-- does not stand leaves nothing.
-- Interleavings: another reading of the same run has another number and so other keys.
-- $1 run · $2 reading · $3 rows staged before · $4 recipients · $5 payloads as text
-- Locks: new rows only. Index: schedule_recipient_pkey.
INSERT INTO outboxd.schedule_recipient (run_id, attempt, n, recipient, payload)
SELECT $1::bigint, $2::int, $3::bigint + b.n, b.recipient, b.payload::jsonb
  FROM unnest($4::text[], $5::text[]) WITH ORDINALITY b(recipient, payload, n)
