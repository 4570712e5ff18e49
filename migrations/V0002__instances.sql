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
    -- Since when it goes on without its Redis: what it published may be in its process and die with it.
    fallback_since timestamptz,
    -- Topics that another instance lacks a route for stay in its process: what it published may die with it.
    keeps_its_own boolean NOT NULL DEFAULT false,
    in_flight     integer NOT NULL DEFAULT 0,
    draining      boolean NOT NULL DEFAULT false,
    clock_skew_ms integer,
    pid           integer NOT NULL,
    roles         text[] NOT NULL,
    queue_kind    text NOT NULL,
    host          text NOT NULL,
    version       text NOT NULL
) WITH (fillfactor = 50);

-- What an instance sees beside the database: its queue's server and its own clock. One row each, written anew every
-- few seconds; apart from `instance`, whose row must stay small for the heartbeat.
CREATE TABLE outboxd.instance_report (
    instance               integer PRIMARY KEY,
    reported_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    clock_skew_ms          integer NOT NULL,
    -- NULL: the queue is in the process.
    queue_reachable        boolean,
    queue_error            text,
    queue_policy           text,
    queue_memory_bytes     bigint,
    queue_memory_max_bytes bigint,
    -- Whether a transaction-mode pooler that its configuration does not mention shares its sessions.
    sessions_shared        boolean,
    -- The topics that it has routes for, `default` among them. NULL: it only relays, and needs none.
    topics                 text[],
    -- Files it may have open, and would use.
    files_max              bigint,
    files_wanted           bigint,
    -- The last error for which calls went back because the process or its machine lacked something, how many, since when
    -- and until when.
    lacked                 text,
    lacked_calls           bigint,
    lacked_since           timestamptz,
    lacked_at              timestamptz,
    -- The channels at a limit, each as [the limit, calls that can be expected to start in a second]. NULL: none is.
    limits                 jsonb,
    -- The topics that have their share of its calls, each with the calls that can be expected to start in a second.
    shares                 jsonb
) WITH (fillfactor = 50);

-- Leader leases that one instance does at a time for all: a lease, by the database's clock. A row lock or an advisory
-- lock of a session would not work through a transaction-mode pooler.
--
-- Every statement done under a lease checks the lease itself and locks this row FOR KEY SHARE meanwhile, so the lease
-- cannot change its owner in the middle of it, and a former owner that wakes up late does nothing.

CREATE TABLE outboxd.leader_lease (
    name  text PRIMARY KEY,
    owner integer,
    until timestamptz,
    since timestamptz,
    CONSTRAINT owners_and_only_they_have_a_lease
        CHECK ((owner IS NULL) = (until IS NULL) AND (owner IS NULL) = (since IS NULL))
) WITH (fillfactor = 50);

INSERT INTO outboxd.leader_lease (name) VALUES ('retention'), ('schedules'), ('events');
