-- How far the streams are known to be, whether there is more for them, and whether publish() rings: as in _ring(), an
-- instance set the bell in the last 5 s, and it is not ahead of now. Asked at every poll, so it locks and writes nothing.
-- Locks: none. Index: event_progress_pkey, event_outbox_pkey.
SELECT p.newest, p.appended, p.lost_at IS NOT NULL AND p.restored_at IS NULL AS is_restoring,
       EXISTS (SELECT FROM outboxd.event_outbox) AS has_waiting,
       coalesce(abs(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('outboxd.doorbell'::regclass) - 2500) <= 2500,
                false) AS is_rung
  FROM outboxd.event_progress p WHERE p.only_row
