-- The roles of outboxd. `outboxd migrate` runs this where it may create roles; where it may not, a DBA runs it
-- once (`outboxd roles | psql …`) and then `outboxd migrate` again: the grants come with it. Safe to repeat.
--
--   outboxd_app       what the application's login gets:   GRANT outboxd_app TO my_app;
--   outboxd_operator  what people who act get:             GRANT outboxd_operator TO alice;
--   outboxd_reader    what status pages and Grafana get:   GRANT outboxd_reader TO grafana;
--   outboxd_service   what the daemon runs as:             GRANT outboxd_service TO my_daemon;
--   outboxd_audience  what schedules read audiences as:    GRANT SELECT ON app.quiz_audience TO outboxd_audience;
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['outboxd_app', 'outboxd_operator', 'outboxd_reader', 'outboxd_service', 'outboxd_audience'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL; -- another migration was faster
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'role % is missing and may not be created by %: let a DBA run what `outboxd roles` prints, then migrate again',
                        wanted, current_user;
            END;
        END IF;
    END LOOP;
    -- Whoever owns the schema hands a function over to this role: see grants.sql. From 16 on, whoever creates a role is
    -- a member of it that may not act as it.
    SELECT n.nspowner::regrole::text INTO wanted FROM pg_catalog.pg_namespace n
     WHERE n.nspname = 'outboxd'
       AND (SELECT NOT pg_catalog.pg_has_role(n.nspowner, r.oid,
                       CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
              FROM pg_catalog.pg_roles r WHERE r.rolname = 'outboxd_audience');
    IF wanted IS NOT NULL THEN
        BEGIN
            EXECUTE format('GRANT outboxd_audience TO %s', wanted);
        EXCEPTION
            WHEN insufficient_privilege THEN NULL; -- grants.sql says what it needs
            WHEN internal_error OR unique_violation THEN NULL; -- granted by another migration just now
        END;
    END IF;
    -- Lets the view `health` name the session that pins vacuum.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd_service')
       AND NOT pg_catalog.pg_has_role('outboxd_service', 'pg_read_all_stats', 'MEMBER') THEN
        BEGIN
            GRANT pg_read_all_stats TO outboxd_service;
        EXCEPTION
            WHEN insufficient_privilege THEN NULL; -- optional: health says less
            WHEN internal_error OR unique_violation THEN NULL; -- granted by another database's migration just now
        END;
    END IF;
END $$;
