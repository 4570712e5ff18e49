-- Who keeps vacuum from removing dead rows of this database: sessions, prepared transactions, replication slots; the
-- oldest snapshot first. Other people's times are seen only with pg_read_all_stats; `age_xids` is seen by all.
CREATE OR REPLACE VIEW outboxd._vacuum_pins AS
SELECT format('session pid %s of %s%s', a.pid, coalesce(pg_get_userbyid(a.usesysid)::text, 'the system'),
              coalesce(' (' || nullif(a.application_name, '') || ')', '')) AS who,
       now() - a.xact_start AS held_for, a.query_start,
       greatest(age(a.backend_xmin), age(a.backend_xid)) AS age_xids,
       format('SELECT pg_terminate_backend(%s); and set idle_in_transaction_session_timeout', a.pid) AS remedy
  FROM pg_stat_activity a
 WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.pid <> pg_backend_pid()
   -- A standby with hot_standby_feedback pins through its walsender; autovacuum, which is nobody's session, pins for
   -- moments.
   AND (a.datname = current_database() AND a.usesysid IS NOT NULL OR a.backend_type = 'walsender')
UNION ALL
SELECT format('prepared transaction %L of %s', p.gid, p.owner), now() - p.prepared, p.prepared, age(p.transaction),
       format('ROLLBACK PREPARED %L; or COMMIT PREPARED', p.gid)
  FROM pg_prepared_xacts p WHERE p.database = current_database()
UNION ALL
SELECT format('replication slot %L', s.slot_name), NULL, NULL, greatest(age(s.xmin), age(s.catalog_xmin)),
       format('let its reader catch up, or SELECT pg_drop_replication_slot(%L)', s.slot_name)
  FROM pg_replication_slots s WHERE s.xmin IS NOT NULL;
