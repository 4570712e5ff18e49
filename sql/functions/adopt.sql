-- Says what a database is that was copied or moved: 'same', the same installation, moved, which goes on with what it has;
-- or 'new', a clone, whose backlog is canceled and which gets an identity of its own. One batch of what follows is done
-- here, the rest by running instances or by calling this again.
--
-- A copy of the files has the identity of its original, so nothing is noticed. There 'new' wants the id of the
-- installation that it replaces: said again it changes nothing, and said by mistake of the original neither.
-- Interleavings: the row of origin is locked, so of two operators the second finds what the first has said. Said while
-- rows are still set aside, it counts once they are.
-- Locks: the row of origin; with 'new' the schedules, their open runs and the row of settings; what _step_origin() locks.
CREATE OR REPLACE FUNCTION outboxd.adopt(adopt_as text, replaces text DEFAULT NULL)
    RETURNS TABLE (phase text, waiting bigint, install_id text, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    o           outboxd.origin;
    here_id     text;
    here_system bigint := outboxd._system_identifier();
    here_oid    oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    is_unlike   boolean;
    schedules   bigint := 0;
BEGIN
    IF adopt.adopt_as IS NULL OR adopt.adopt_as NOT IN ('same', 'new') THEN
        RAISE EXCEPTION 'adopt: % is neither ''same'' nor ''new''', quote_nullable(adopt.adopt_as) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'same: this is the installation, moved; new: this is a clone of it.';
    END IF;
    SELECT g.* INTO o FROM outboxd.origin g FOR UPDATE;
    SELECT s.install_id INTO here_id FROM outboxd.setting s;
    is_unlike := coalesce(o.database_oid <> here_oid, false) OR coalesce(o.system_identifier <> here_system, false);
    IF adopt.replaces <> here_id THEN
        IF o.adopted_as = 'new' AND adopt.adopt_as = 'new' THEN
            adopt.replaces := here_id;
        ELSE
            RAISE EXCEPTION 'adopt: this is installation %, not %', here_id, adopt.replaces USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Look whether this is the database that you mean.';
        END IF;
    ELSIF adopt.adopt_as = 'new' AND adopt.replaces = here_id AND o.phase = 'own' AND NOT is_unlike THEN
        -- As if it had come from another database.
        UPDATE outboxd.origin SET database_oid = 0;
        is_unlike := true;
    END IF;
    IF is_unlike AND o.phase = 'own' AND adopt.adopt_as = 'same' THEN
        -- Nobody has set anything aside yet: it goes on as it is.
        UPDATE outboxd.origin SET database_oid = here_oid, system_identifier = here_system, adopted_as = 'same';
        INSERT INTO outboxd.audit (action, subject, affected) VALUES ('adopt', 'same', 0);
        RETURN QUERY SELECT 'own'::text, 0::bigint, here_id, 'it is the same installation: all goes on'::text;
        RETURN;
    END IF;
    IF is_unlike THEN
        PERFORM outboxd._recognise();
        SELECT g.* INTO o FROM outboxd.origin g;
    END IF;
    IF o.phase = 'own' AND adopt.adopt_as = 'new' AND o.adopted_as IS DISTINCT FROM 'new' THEN
        RAISE EXCEPTION 'adopt: this is the database that installation % lives in, or a copy of its files, which cannot be told from it', here_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('If it is such a copy and nothing of it is to be sent: outboxd adopt --new --replaces %s', here_id);
    ELSIF o.phase = 'own' THEN
        -- Redis keeps whose its keys are; this lets a database that somebody means take them.
        UPDATE outboxd.origin SET adopted_as = adopt.adopt_as;
        RETURN QUERY SELECT o.phase, 0::bigint, here_id, CASE WHEN adopt.adopt_as = 'new' THEN 'nothing waits: it is a new installation since it was adopted'
                                                              ELSE 'nothing waits: it is the database that the installation lives in' END;
        RETURN;
    ELSIF o.adopted_as <> adopt.adopt_as THEN
        RAISE EXCEPTION 'adopt: it is being adopted as % already', quote_literal(o.adopted_as) USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF o.adopted_as IS NULL THEN
        UPDATE outboxd.origin g SET adopted_as = adopt.adopt_as,
               phase = CASE WHEN g.phase <> 'waiting' THEN g.phase WHEN adopt.adopt_as = 'same' THEN 'returning' ELSE 'canceling' END;
        IF adopt.adopt_as = 'new' THEN
            -- Slots come again once somebody resumes them; what was prepared is canceled with the rest.
            WITH paused AS (
                UPDATE outboxd.schedule s SET paused_at = clock_timestamp(), version = s.version + 1
                 WHERE s.id <= o.schedules_through AND s.paused_at IS NULL RETURNING s.id
            ) SELECT count(*) INTO schedules FROM paused;
            UPDATE outboxd.schedule_run r SET state = 'canceled', ended_at = clock_timestamp()
             WHERE r.ended_at IS NULL AND r.schedule_id <= o.schedules_through;
            UPDATE outboxd.setting SET install_id = left(replace(gen_random_uuid()::text, '-', ''), 12),
                   signing_key = decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');
            UPDATE outboxd.schedule_secret
               SET secret = sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
            -- Its streams begin with its own events; those of the copy stay readable.
            DELETE FROM outboxd.event_outbox e WHERE e.since <= o.noticed_at;
            DELETE FROM outboxd.event_publication p WHERE p.created_at <= o.noticed_at;
        END IF;
        INSERT INTO outboxd.audit (action, subject, affected, detail)
        VALUES ('adopt', adopt.adopt_as, (SELECT count(*) FROM outboxd.copied),
                jsonb_build_object('install_id', (SELECT s.install_id FROM outboxd.setting s), 'was', here_id, 'schedules_paused', schedules));
    END IF;
    PERFORM outboxd._step_origin();
    -- Counted up to 100,000: each batch asks.
    RETURN QUERY SELECT g.phase, (SELECT count(*) FROM (SELECT FROM outboxd.copied LIMIT 100000) c), (SELECT s.install_id FROM outboxd.setting s),
           CASE WHEN g.phase = 'own' AND adopt.adopt_as = 'same' THEN 'it is the same installation: all goes on'
                WHEN g.phase = 'own' THEN 'it is a new installation: what the copy brought is canceled, its schedules are paused (outboxd.schedules)'
                ELSE 'running instances go on with it, or call this again' END
      FROM outboxd.origin g;
END $$;

COMMENT ON FUNCTION outboxd.adopt IS
    'Of a database that was copied or moved: ''same'', it is the same installation and all goes on; ''new'', it is a clone: what the copy brought is canceled, its schedules are paused, and it gets an identity of its own.';
