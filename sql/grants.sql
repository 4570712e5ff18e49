-- Who may do what. Runs after the functions and views are installed; safe to repeat. Roles that do not exist
-- are passed over (see roles.sql).
REVOKE ALL ON SCHEMA outboxd FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA outboxd FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outboxd FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_app') THEN
        GRANT USAGE ON SCHEMA outboxd TO outboxd_app;
        GRANT EXECUTE ON FUNCTION
            outboxd.notify(text, text, jsonb, timestamptz, text, text, timestamptz, jsonb),
            outboxd.notify(text, text, json, timestamptz, text, text, timestamptz, jsonb),
            outboxd.notify(text, text, text, timestamptz, text, text, timestamptz, jsonb),
            outboxd.notify_many, outboxd.status, outboxd.publish, outboxd.receive, outboxd.respond TO outboxd_app;
        -- ORMs name every column they know, `id` as DEFAULT, and read back what has a default. Recipients and payloads
        -- stay unread. DEFAULT needs the right to INSERT the column, and that right allows OVERRIDING SYSTEM VALUE too:
        -- the trigger ids_are_drawn_by_the_server refuses that. It asks what this session drew last, as whoever inserts.
        GRANT INSERT (id, topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers)
            ON outboxd.notification_log TO outboxd_app;
        GRANT SELECT (id, topic, created_at, send_at, status, epoch, attempts) ON outboxd.notification_log TO outboxd_app;
        GRANT SELECT ON SEQUENCE outboxd.notification_log_id_seq TO outboxd_app;
        -- The default of created_at reads the bell and rings, as whoever inserts.
        GRANT EXECUTE ON FUNCTION outboxd._ring_at_insert TO outboxd_app;
        GRANT SELECT ON SEQUENCE outboxd.doorbell TO outboxd_app;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_operator') THEN
        GRANT USAGE ON SCHEMA outboxd TO outboxd_operator;
        GRANT SELECT ON outboxd.notifications, outboxd.attempts, outboxd.dead_letters, outboxd.queue_state,
            outboxd.outbox_lag, outboxd.workers, outboxd.instances, outboxd.stuck, outboxd.waiting, outboxd.throughput, outboxd.latency,
            outboxd.channel_health, outboxd.bulk_actions, outboxd.health, outboxd.schedules, outboxd.schedule_runs, outboxd.events_waiting,
            outboxd.event_consumers, outboxd.audit TO outboxd_operator;
        -- What views call, they call as whoever asks.
        GRANT EXECUTE ON FUNCTION outboxd._count_active, outboxd._count_waiting, outboxd._plural, outboxd._sees_all,
            outboxd._planned_for, outboxd._masked, outboxd._masked_origin, outboxd._cause TO outboxd_operator;
        GRANT EXECUTE ON FUNCTION outboxd.status, outboxd.why, outboxd.retry, outboxd.retry_dead, outboxd.retry_where, outboxd.resend,
            outboxd.cancel, outboxd.cancel_where, outboxd.discard, outboxd.discard_where, outboxd.stop_bulk, outboxd.replay_events, outboxd.pause,
            outboxd.resume, outboxd.pause_channel, outboxd.resume_channel, outboxd.close_circuit, outboxd.probe_channel,
            outboxd.create_schedule, outboxd.alter_schedule, outboxd.pause_schedule, outboxd.resume_schedule,
            outboxd.drop_schedule, outboxd.share_consumer, outboxd.unshare_consumer, outboxd.adopt TO outboxd_operator;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_reader') THEN
        GRANT USAGE ON SCHEMA outboxd TO outboxd_reader;
        GRANT SELECT ON outboxd.notifications, outboxd.attempts, outboxd.dead_letters, outboxd.queue_state,
            outboxd.outbox_lag, outboxd.workers, outboxd.instances, outboxd.stuck, outboxd.waiting, outboxd.throughput, outboxd.latency,
            outboxd.channel_health, outboxd.bulk_actions, outboxd.health, outboxd.schedules, outboxd.schedule_runs, outboxd.events_waiting,
            outboxd.event_consumers TO outboxd_reader;
        GRANT EXECUTE ON FUNCTION outboxd._count_active, outboxd._count_waiting, outboxd._plural, outboxd._sees_all,
            outboxd._planned_for, outboxd._masked, outboxd._masked_origin, outboxd._cause, outboxd.status, outboxd.why TO outboxd_reader;
    END IF;
    -- Audiences are read by a function that belongs to this role. Who hands it over must be a member, and the role
    -- may create in the schema just for that.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_audience')
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_roles r ON r.oid = p.proowner
                        WHERE p.oid = 'outboxd._read_audience'::pg_catalog.regproc AND r.rolname = 'outboxd_audience') THEN
        BEGIN
            GRANT CREATE ON SCHEMA outboxd TO outboxd_audience;
            ALTER FUNCTION outboxd._read_audience OWNER TO outboxd_audience;
            REVOKE CREATE ON SCHEMA outboxd FROM outboxd_audience;
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE WARNING 'schedules wait: let a DBA run GRANT outboxd_audience TO %, then migrate again', current_user;
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_service') THEN
        GRANT USAGE ON SCHEMA outboxd TO outboxd_service;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA outboxd TO outboxd_service;
        GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA outboxd TO outboxd_service;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outboxd TO outboxd_service;
    END IF;
END $$;
