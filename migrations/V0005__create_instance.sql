-- One row per start of an instance. Who is dead is decided here, by heartbeat and the database's clock.

CREATE TABLE outboxd.instance (
    id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ttl           interval NOT NULL,
    stopped_at    timestamptz,
    -- The queue's push counter and the newest publication this instance has seen taken.
    queue_counter bigint NOT NULL DEFAULT 0,
    claimed_through timestamptz,
    in_flight     integer NOT NULL DEFAULT 0,
    draining      boolean NOT NULL DEFAULT false,
    clock_skew_ms integer,
    pid           integer NOT NULL,
    roles         text[] NOT NULL,
    queue_kind    text NOT NULL,
    host          text NOT NULL,
    version       text NOT NULL
) WITH (fillfactor = 50);
