-- The transactions that may hold rows we cannot see yet: whoever inserts locks one of these tables first, or the sequence when it
-- draws the row's number. Our own short statements are among them.
-- Locks: none. Reads the lock table.
SELECT l.virtualtransaction FROM pg_catalog.pg_locks l
 WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
   AND l.relation IN ('outboxd.outbox'::regclass, 'outboxd.notification_log'::regclass, 'outboxd.event_outbox'::regclass,
                      'outboxd.notification_log_id_seq'::regclass)
   AND l.pid IS DISTINCT FROM pg_backend_pid()
