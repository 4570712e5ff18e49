-- Whether this database is the one that the installation lives in: asked by every connection of an instance before its
-- first use, and with each heartbeat. If it is another one (restored from a dump, cloned, upgraded), the live work was
-- brought by a copy and waits; see _step_origin(). Answers as _origin_work().
--
-- A standby has the identifier and the oids of its primary: a failover is none. A copy of the files that is started
-- beside the original cannot be told from it.
-- Interleavings: of several instances at once one writes, and the others, which wait for it, find nothing different. What
-- was drawn before has a lower id; an app's transaction that drew one and commits later is set aside as if the copy had
-- brought it, or goes out, if it commits after that was done. No publication of ours is older: nobody publishes before
-- this has committed.
-- Locks: none; where it differs the row of origin, the publications, the leases, open bulk actions.
CREATE OR REPLACE FUNCTION outboxd._recognise() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known       outboxd.origin;
    here_system bigint := outboxd._system_identifier();
    here_oid    oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
    SELECT o.* INTO known FROM outboxd.origin o;
    IF known.database_oid = here_oid AND (known.system_identifier = here_system OR here_system IS NULL) THEN
        RETURN outboxd._origin_work();
    END IF;
    -- Known for the first time.
    UPDATE outboxd.origin o SET database_oid = here_oid, system_identifier = here_system
     WHERE o.database_oid IS NULL OR (o.database_oid = here_oid AND o.system_identifier IS NULL);
    UPDATE outboxd.origin o
       SET database_oid = here_oid, system_identifier = here_system, phase = 'setting aside', noticed_at = clock_timestamp(),
           adopted_as = NULL, position = 0, is_past_outbox = false, position_topic = '', position_at = '-infinity',
           log_through = greatest((SELECT s.last_value FROM outboxd.notification_log_id_seq s),
                                  (SELECT max(l.id) FROM outboxd.notification_log l)),
           schedules_through = coalesce((SELECT max(s.id) FROM outboxd.schedule s), 0)
     WHERE o.database_oid <> here_oid OR o.system_identifier <> here_system;
    IF FOUND THEN
        DELETE FROM outboxd.publication;
        UPDATE outboxd.leader_lease SET owner = NULL, until = NULL, since = NULL;
        UPDATE outboxd.bulk_action b SET next_at = 'infinity' WHERE b.ended_at IS NULL;
        INSERT INTO outboxd.audit (action, subject, affected, detail)
        VALUES ('copy_noticed', (SELECT s.install_id FROM outboxd.setting s), 0, jsonb_build_object(
                'was', jsonb_build_object('system_identifier', known.system_identifier::text, 'database_oid', known.database_oid::text),
                'is', jsonb_build_object('system_identifier', here_system::text, 'database_oid', here_oid::text)));
    END IF;
    RETURN outboxd._origin_work();
END $$;
