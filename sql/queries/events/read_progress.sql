-- How far the streams are known to be, and whether there is more for them. Asked at every poll, so it locks and writes
-- nothing.
-- Locks: none. Index: event_progress_pkey, event_outbox_pkey.
SELECT p.newest, p.appended, p.lost_at IS NOT NULL AND p.restored_at IS NULL AS is_restoring,
       EXISTS (SELECT FROM outboxd.event_outbox) AS has_waiting
  FROM outboxd.event_progress p WHERE p.only_row
