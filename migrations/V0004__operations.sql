-- The name of the token by which a caller of the HTTP API acts; NULL: somebody acts in SQL. Over HTTP everybody has the
-- daemon's login, which sets it with each action. Any session can set a setting, so only the daemon's login and the owner
-- are believed. Where rows of audit come from, in a SECURITY DEFINER function, current_user is the owner.
CREATE FUNCTION outboxd._token() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT nullif(current_setting('outboxd.token', true), '')
     WHERE pg_has_role(session_user, current_user, 'MEMBER')
        OR pg_has_role(session_user, to_regrole('outboxd_service'), 'MEMBER')
$$;

-- What operators did: who, when, what, to how many.

CREATE TABLE outboxd.audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL DEFAULT session_user,
    token    text DEFAULT outboxd._token(),
    action   text NOT NULL,
    subject  text NOT NULL,
    affected bigint NOT NULL,
    detail   jsonb
);
CREATE INDEX audit_at ON outboxd.audit (at);

-- One row: this installation's identity and the limits of reading an audience.
CREATE TABLE outboxd.setting (
    only_row          boolean PRIMARY KEY DEFAULT true,
    install_id        text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12),
    -- Signs the sessions and tickets of HTTP for all instances, which alone may read it; two UUIDs hold 244 random bits.
    signing_key       bytea NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    audience_rows_max bigint NOT NULL DEFAULT 5000000,
    audience_time_max interval NOT NULL DEFAULT '2 minutes',
    -- Which functions and views are installed; see src/migrate.rs.
    sql_installed     text NOT NULL DEFAULT '',
    CONSTRAINT there_is_one_row_of_settings CHECK (only_row),
    CONSTRAINT audience_has_1_row_or_more CHECK (audience_rows_max > 0),
    CONSTRAINT audience_time_is_between_100_ms_and_1_hour CHECK (audience_time_max BETWEEN '100 ms' AND '1 hour')
);
INSERT INTO outboxd.setting DEFAULT VALUES;

-- One row: the database that this installation lives in, by the server's system identifier and the database's oid, which
-- a dump, a snapshot of rows and pg_upgrade do not bring along. NULL: no instance has been here yet, or this login may not
-- ask. Where they differ, the data came from another database: see _recognise().
--
--   own ─► setting aside ─► waiting ─► returning or canceling ─► own
--
-- What the copy brought: notifications up to `log_through`, schedules up to `schedules_through`.
CREATE TABLE outboxd.origin (
    only_row          boolean PRIMARY KEY DEFAULT true,
    system_identifier bigint,
    database_oid      oid,
    phase             text NOT NULL DEFAULT 'own',
    noticed_at        timestamptz,
    -- What an operator said it is: the same installation, moved, or a new one.
    adopted_as        text,
    log_through       bigint NOT NULL DEFAULT 0,
    schedules_through bigint NOT NULL DEFAULT 0,
    -- How far setting aside is: the last row of the outbox; then of the log.
    position          bigint NOT NULL DEFAULT 0,
    is_past_outbox    boolean NOT NULL DEFAULT false,
    position_topic    text NOT NULL DEFAULT '',
    position_at       timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT there_is_one_origin CHECK (only_row),
    CONSTRAINT phase_is_known_to_us CHECK (phase IN ('own', 'setting aside', 'waiting', 'returning', 'canceling')),
    CONSTRAINT it_is_the_same_or_a_new_one CHECK (adopted_as IN ('same', 'new'))
) WITH (fillfactor = 50);
INSERT INTO outboxd.origin DEFAULT VALUES;

-- The live work that a copy brought, out of every scan until somebody says whose it is: its records are QUEUED and have no
-- row in the outbox. What was PENDING has neither `seq` nor `state`.
CREATE TABLE outboxd.copied (
    id               bigint PRIMARY KEY,
    seq              bigint,
    due_at           timestamptz,
    retry_at         timestamptz,
    epoch            integer NOT NULL,
    attempts         integer NOT NULL,
    instance         integer,
    route_step       smallint NOT NULL,
    channel_attempts smallint NOT NULL,
    state            outboxd.state,
    cancel           boolean NOT NULL,
    topic            text NOT NULL,
    ordering_key     text,
    CONSTRAINT pending_rows_have_a_time_and_no_position CHECK ((state IS NULL) = (seq IS NULL) AND (seq IS NULL) = (due_at IS NOT NULL))
);
-- The order in which it goes on: positions first, so that the rows of a key keep theirs.
CREATE INDEX copied_order ON outboxd.copied (seq, due_at, id);

-- Big actions of operators: the call only writes this row, running instances work it off in small batches, one
-- instance at a time. `cursor_part`, `cursor_at` and `cursor_id` say how far it is; what happened after `started_at` is not touched, so
-- that a row that fails again is not retried for ever.
CREATE TABLE outboxd.bulk_action (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action     text NOT NULL,
    filter     jsonb NOT NULL,
    actor      text NOT NULL,
    token      text DEFAULT outboxd._token(),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    stopped_by text,
    matched    bigint NOT NULL,
    done       bigint NOT NULL DEFAULT 0,
    rows_max   bigint,
    phase      smallint NOT NULL DEFAULT 0,
    cursor_part text NOT NULL DEFAULT '',
    cursor_at  timestamptz NOT NULL DEFAULT '-infinity',
    cursor_id  bigint NOT NULL DEFAULT 0,
    -- The batch before, while it waits to be sent: the next one waits for most of it.
    batch      bigint[] NOT NULL DEFAULT '{}',
    stepped_at timestamptz,
    next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    error      text,
    CONSTRAINT bulk_actions_retry_discard_or_cancel CHECK (action IN ('retry', 'discard', 'cancel')),
    CONSTRAINT only_ended_bulk_actions_are_stopped CHECK (stopped_by IS NULL OR ended_at IS NOT NULL)
);
CREATE INDEX bulk_action_open ON outboxd.bulk_action (id) WHERE ended_at IS NULL;

-- What POST /v1/notifications answered under an Idempotency-Key, so that a repeat gets the same answer. Written with the
-- notifications, in one transaction. Keys are each token's own.
CREATE TABLE outboxd.idempotency (
    token  text NOT NULL,
    key    text NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- SHA-256 of the request's body.
    digest bytea NOT NULL,
    ids    bigint[] NOT NULL,
    PRIMARY KEY (token, key)
);
CREATE INDEX idempotency_at ON outboxd.idempotency (at);

-- How far retention has come in each table. A scan goes up the table once; what it passed and had to leave (kept
-- longer, not yet ended) is found when it starts again, about once a day, so that history is not read again and
-- again. `position` is the last id read (inbox and idempotency: the time in microseconds since 1970).

CREATE TABLE outboxd.retention_progress (
    name         text PRIMARY KEY,
    position     bigint NOT NULL DEFAULT 0,
    is_caught_up boolean NOT NULL DEFAULT false,
    restarted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

INSERT INTO outboxd.retention_progress (name)
VALUES ('notification_log'), ('attempt'), ('event'), ('inbox'), ('idempotency'), ('audit'), ('schedule_run');
