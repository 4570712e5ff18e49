-- The live work: one narrow row from QUEUED until the notification has ended, then deleted. It stays small,
-- so every sweep and count over it is cheap.
--
-- state  0 ready       waits to be published; `retry_at` set: not before then
--        1 published   in the queue; `next_at` = when it was published, `batch` = by which publication
--        2 processing  claimed; `next_at` = when the lease ends, `instance` = who holds it
--        3 behind key  waits for the live row of its ordering_key
--
-- Only columns that never change between QUEUED and SENT are indexed (a retry, which sets `retry_at`, is the
-- exception), so publish and claim are HOT updates; fillfactor 50 leaves room for them on the page.
-- `lane` is the topic's lane for fair turns; 0 = not yet assigned (see V0003).

-- One CHECK that calls a function, for the reason given in V0001.
CREATE FUNCTION outboxd._check_work(
    state smallint, instance integer, batch bigint, retry_at timestamptz, ordering_key text, live_key text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    rule pg_catalog.text;
BEGIN
    IF state OPERATOR(pg_catalog.=) 0 AND retry_at IS NULL AND ordering_key IS NULL AND live_key IS NULL THEN
        RETURN true;
    END IF;
    rule := CASE
        WHEN state OPERATOR(pg_catalog.<) 0 OR state OPERATOR(pg_catalog.>) 3
            THEN 'state_is_ready_published_processing_or_behind_key'
        WHEN state OPERATOR(pg_catalog.=) 2 AND instance IS NULL THEN 'processing_rows_have_a_worker'
        WHEN state OPERATOR(pg_catalog.=) 1 AND batch IS NULL THEN 'published_rows_have_a_publication'
        WHEN state OPERATOR(pg_catalog.<>) 0 AND retry_at IS NOT NULL THEN 'only_ready_rows_wait_for_a_retry'
        WHEN state OPERATOR(pg_catalog.=) 3 AND ordering_key IS NULL THEN 'only_rows_with_a_key_wait_behind_it'
        WHEN CASE WHEN state OPERATOR(pg_catalog.<) 3 THEN (live_key IS NULL) OPERATOR(pg_catalog.<>) (ordering_key IS NULL)
                       OR live_key OPERATOR(pg_catalog.<>) ordering_key
                  ELSE live_key IS NOT NULL END THEN 'rows_that_have_their_turn_hold_their_key'
    END;
    IF rule IS NULL THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'new row for relation "outbox" violates check constraint "%"', rule
        USING ERRCODE = 'check_violation', SCHEMA = 'outboxd', TABLE = 'outbox', CONSTRAINT = rule;
END $$;

CREATE TABLE outboxd.outbox (
    id               bigint PRIMARY KEY,
    seq              bigint GENERATED ALWAYS AS IDENTITY,
    next_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at         timestamptz,
    batch            bigint,
    lane             integer NOT NULL DEFAULT 0,
    epoch            integer NOT NULL DEFAULT 0,
    instance         integer,
    attempts         integer NOT NULL DEFAULT 0,
    channel_attempts smallint NOT NULL DEFAULT 0,
    channel          smallint NOT NULL DEFAULT 0,
    state            smallint NOT NULL DEFAULT 0,
    cancel           boolean NOT NULL DEFAULT false,
    ordering_key     text,
    -- The key of a row that has its turn: unique, so that a key has at most one live row.
    live_key         text,

    CONSTRAINT work_is_legal CHECK (outboxd._check_work(state, instance, batch, retry_at, ordering_key, live_key))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);

CREATE INDEX outbox_lane ON outboxd.outbox (lane, seq);
CREATE INDEX outbox_retry ON outboxd.outbox (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX outbox_key ON outboxd.outbox (ordering_key, seq) WHERE ordering_key IS NOT NULL;
CREATE UNIQUE INDEX a_key_has_at_most_one_live_row ON outboxd.outbox (live_key) WHERE live_key IS NOT NULL;

-- A publication exists from the reservation of its rows until the push is known to have arrived. One that is
-- still there 5 s later was cut short: its rows are published again.
CREATE SEQUENCE outboxd.publication_id;
CREATE TABLE outboxd.publication (
    id          bigint PRIMARY KEY,
    instance    integer NOT NULL,
    reserved_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
