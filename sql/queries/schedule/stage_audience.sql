-- The audience as it is now, numbered. In one transaction with schedule/finish_reading: what does not stand leaves
-- nothing.
-- Interleavings: another reading of the same run has another number and so other keys.
-- $1 run · $2 reading · $3 audience · $4 slot · $5 rows at most (one more shows that there are too many)
-- Locks: new rows only; whatever the audience reads. Index: schedule_recipient_pkey.
INSERT INTO outboxd.schedule_recipient (run_id, attempt, n, recipient, payload)
SELECT $1::bigint, $2::int, row_number() OVER (), a.recipient, a.payload
  FROM outboxd._read_audience($3::text, $4::timestamptz, $5::bigint + 1) a
