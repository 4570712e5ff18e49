-- The three tables of the core, and what belongs to them.
--
--   notification_log  the record: one row per notification, from the app's transaction to the end of its retention
--   outbox            the live work: one narrow row from QUEUED until the notification has ended, then deleted
--   publication       one batch being pushed to the queue, from its reservation until the push is known to have arrived

CREATE TYPE outboxd.notification_status AS ENUM ('PENDING', 'QUEUED', 'SENT', 'FAILED', 'CANCELED');
CREATE TYPE outboxd.state AS ENUM ('ready', 'published', 'processing', 'blocked');

-- The doorbell: one shared word outside MVCC, a time in milliseconds since 1970.
--
--   busy and polling      ahead of now             the app does not ring
--   listening             refreshed every second   the app rings (NOTIFY)
--   down                  stale                    the app does not ring
--
-- A sequence leaves no dead row versions, takes no row lock and is seen by REPEATABLE READ too.
CREATE SEQUENCE outboxd.doorbell MINVALUE 0 START 0;

-- Rings, and returns the time. Replaced by sql/functions/_ring_at_insert.sql, which needs functions that come later.
CREATE FUNCTION outboxd._ring_at_insert() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() $$;

-- Half of each page is left free: all rows of a page become SENT in one statement, before anything can be pruned, and
-- with room for the second version that update is HOT. No index may name `status` or `finished_at`: it would end that.
-- `due_at` and `failed_at` are NULL before and after QUEUED → SENT, so their partial indexes do not stand in its way.
-- Every statement that writes reads and compiles the CHECKs and generated columns from the catalog, at a cost that goes
-- by their length. So they are short: a range is one comparison where BETWEEN is two, ALL one for two columns. A NULL
-- passes. The payload's is not asked again when the notification ends.
CREATE TABLE outboxd.notification_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- An INSERT rings through this default, whoever makes it: a tenth of what a trigger costs. Within 2,500 ms of
    -- 2,500 ms ago is 0 to 5 s ago. Whoever inserts needs the right to read the bell and to ring: see grants.sql.
    created_at   timestamptz NOT NULL DEFAULT
        CASE WHEN abs(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('outboxd.doorbell'::regclass) - 2500) <= 2500
             THEN outboxd._ring_at_insert() ELSE clock_timestamp() END,
    -- Not now(): that is when the transaction began, which is not the order in which an app wrote.
    send_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    finished_at  timestamptz,
    due_at       timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'PENDING' THEN send_at END) STORED,
    -- finished_at while FAILED, else NULL: written with the status, as being generated would cost every notify().
    failed_at    timestamptz,
    status       outboxd.notification_status NOT NULL DEFAULT 'PENDING',
    -- Survives the outbox row: an operator's retry cannot use an old token again.
    epoch        integer NOT NULL DEFAULT 0,
    attempts     integer NOT NULL DEFAULT 0,
    http_status  smallint,
    topic        text NOT NULL,
    -- Compared byte by byte, whatever the database's collation: its index is then cheap to keep, and no upgrade of the
    -- system's collations can make it wrong.
    recipient    text COLLATE "C" NOT NULL,
    payload      jsonb NOT NULL,
    headers      jsonb,
    dedup_key    text,
    ordering_key text,
    channel      text,
    error        text,
    -- The provider's own id of it, on channels that say where it stands in the answer.
    provider_id  text,

    -- Bytes, as an index must hold the value: a B-tree takes 2,700 of them, in any script.
    CONSTRAINT topic_has_1_to_200_and_recipient_1_to_2048_bytes
        CHECK (int4range '[1,200]' @> octet_length(topic) AND int4range '[1,2048]' @> octet_length(recipient)),
    CONSTRAINT keys_have_1_to_512_bytes
        CHECK (int4range '[1,512]' @> ALL (ARRAY[octet_length(dedup_key), octet_length(ordering_key)])),
    CONSTRAINT payload_has_at_most_256_kib
        CHECK (finished_at IS NOT NULL OR octet_length(payload::text) <= 262144),
    CONSTRAINT headers_are_an_object_of_strings
        -- Strict: a lax path looks into arrays, and ["x"] would pass for a string.
        CHECK (headers @@ 'strict $.type() == "object" && !($.*.type() != "string")'),
    -- A claim brings those of all its rows along.
    CONSTRAINT headers_have_at_most_16_kib CHECK (octet_length(headers::text) <= 16384),
    -- What every program can represent.
    CONSTRAINT times_are_in_the_years_1_to_9999
        CHECK (tstzrange '[0001-01-01+00,9999-12-31+00]' @> ALL (ARRAY[send_at, expires_at]))
) WITH (fillfactor = 50);

-- Ids are drawn by the server. ORMs write `id` as DEFAULT, and the right to do so is the right to override it, by
-- OVERRIDING SYSTEM VALUE and by COPY. So whoever may not change rows may write only the number that this session drew
-- last. The condition is asked without a call; the function only refuses. The owner and the daemon pass at the first
-- half of it: notify_many() draws its ids ahead, a restore brings them.
-- Interleavings: currval() is the session's own, so what others draw meanwhile changes nothing.
-- Replaced by sql/functions/_refuse_id.sql.
CREATE FUNCTION outboxd._refuse_id() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'id'; END $$;
CREATE TRIGGER ids_are_drawn_by_the_server BEFORE INSERT ON outboxd.notification_log FOR EACH ROW
    WHEN (NOT has_table_privilege('outboxd.notification_log'::regclass, 'UPDATE')
          AND NEW.id <> currval('outboxd.notification_log_id_seq'::regclass))
    EXECUTE FUNCTION outboxd._refuse_id();

-- By topic, so that a campaign of a million rows does not stand in front of another topic's single row.
CREATE INDEX notification_log_due ON outboxd.notification_log (topic, due_at, id) WHERE due_at IS NOT NULL;
-- By the second in which it is due, and its topics: what is due is found without a look at what is not, however many
-- topics wait for their time, and topics that are due together take turns. Rows of one topic and second are one entry.
CREATE INDEX notification_log_second_due ON outboxd.notification_log (date_bin('1 s', due_at, '2000-01-01+00'), topic) WHERE due_at IS NOT NULL;
-- Finds an earlier PENDING row of the same key: rows of a key are released in this order, whoever releases them. A key
-- belongs to its topic.
CREATE INDEX notification_log_due_key ON outboxd.notification_log (topic, ordering_key, due_at, id)
    WHERE due_at IS NOT NULL AND ordering_key IS NOT NULL;
CREATE INDEX notification_log_failed ON outboxd.notification_log (failed_at) INCLUDE (topic) WHERE failed_at IS NOT NULL;
-- What was sent to somebody, the newest from its end: view, command line and API. Recipients come in no order, so each INSERT
-- touches another page of it; docs/scaling.md says what that costs.
CREATE INDEX notification_log_recipient ON outboxd.notification_log (recipient, id);
-- Statistics would tell the planner of frequent recipients, and it would look for their newest rows down the primary key: past
-- the whole history if they have got nothing lately. Without them it takes the index above, whoever is asked for.
ALTER TABLE outboxd.notification_log ALTER COLUMN recipient SET STATISTICS 0;
CREATE UNIQUE INDEX notification_log_dedup ON outboxd.notification_log (topic, dedup_key) WHERE dedup_key IS NOT NULL;

-- CACHE 1 is part of the protocol: a topic is scanned from a little below the last number found, and a cached one is
-- always late.
CREATE SEQUENCE outboxd.outbox_seq CACHE 1;

-- state  ready       waits to be published; with `retry_at`: not before then
--        published   in the queue since `published_at`, put there by `instance`
--        processing  claimed by `instance`, until `lease_until`
--        blocked     waits behind an earlier row of its topic's ordering_key
--
-- No index names `state`, `ordering_key` never changes and `retry_at` stays NULL in a normal life: its updates are HOT,
-- and the free half of the page has room for them.
CREATE TABLE outboxd.outbox (
    id               bigint PRIMARY KEY,
    -- Its position in its topic and its key, drawn when the row is inserted.
    seq              bigint NOT NULL DEFAULT nextval('outboxd.outbox_seq'),
    published_at     timestamptz,
    lease_until      timestamptz,
    -- Whatever comes back or late carries it: retries, heads of keys, recalled and released rows.
    retry_at         timestamptz,
    -- In the message and, raised by the claim, the token of the attempt.
    epoch            integer NOT NULL DEFAULT 0,
    attempts         integer NOT NULL DEFAULT 0,
    instance         integer,
    route_step       smallint NOT NULL DEFAULT 0,
    channel_attempts smallint NOT NULL DEFAULT 0,
    state            outboxd.state NOT NULL DEFAULT 'ready',
    cancel           boolean NOT NULL DEFAULT false,
    -- A row with a key that is not blocked.
    has_turn         boolean NOT NULL DEFAULT false,
    topic            text NOT NULL,
    ordering_key     text,
    -- Of a row that was put back unclaimed for its destination: the origin that its URL names, '' for the channel as a
    -- whole. Says what its time is for, so that views can tell.
    waits_for        text
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
ALTER SEQUENCE outboxd.outbox_seq OWNED BY outboxd.outbox.seq;

-- Fresh rows, topic by topic, until their work ends: what has a key or a time is outside it.
CREATE INDEX outbox_fresh ON outboxd.outbox (topic, seq) WHERE ordering_key IS NULL AND retry_at IS NULL;
CREATE INDEX outbox_due ON outboxd.outbox (topic, retry_at) WHERE retry_at IS NOT NULL;
-- As notification_log_second_due.
CREATE INDEX outbox_second_due ON outboxd.outbox (date_bin('1 s', retry_at, '2000-01-01+00'), topic) WHERE retry_at IS NOT NULL;
-- A key belongs to its topic: the same one in another topic is another key.
CREATE INDEX outbox_key ON outboxd.outbox (topic, ordering_key, seq) WHERE ordering_key IS NOT NULL;
CREATE UNIQUE INDEX a_key_has_at_most_one_live_row ON outboxd.outbox (topic, ordering_key) WHERE has_turn;

CREATE TABLE outboxd.publication (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance    integer NOT NULL,
    reserved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Here, and not a publication's id in each row: confirming it is one DELETE, recalling it a batch of look-ups.
    ids         bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Topics of which an operator has said something.
CREATE TABLE outboxd.topic (
    name       text PRIMARY KEY,
    paused_at  timestamptz,
    -- What waited through a pause is late only from its end on.
    resumed_at timestamptz,
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(name) BETWEEN 1 AND 200)
);

-- Every attempt that did not end in a recorded success: failed, unknown, late, duplicate.
CREATE TABLE outboxd.attempt (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification_id bigint NOT NULL,
    token           integer NOT NULL,
    number          integer,
    started_at      timestamptz,
    ended_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    duration_ms     integer,
    instance        integer,
    http_status     smallint,
    outcome         text NOT NULL,
    channel         text,
    error           text,
    response        text,
    provider_id     text,

    CONSTRAINT outcome_is_known_to_us CHECK (outcome IN ('failed', 'unknown', 'late failure', 'duplicate', 'late success'))
);
-- By id within: the last attempt of a notification is one probe.
CREATE INDEX attempt_notification ON outboxd.attempt (notification_id, id);
