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
    queue_memory_max_bytes bigint
) WITH (fillfactor = 50);

-- The routes of the configuration in use, so that views can tell which channel a waiting row is meant for.
CREATE TABLE outboxd.route (
    topic    text NOT NULL,
    position smallint NOT NULL,
    channel  text NOT NULL,
    PRIMARY KEY (topic, position)
);
