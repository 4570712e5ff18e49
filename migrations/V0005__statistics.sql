-- What happened, by the minute: each instance adds its own counts every few seconds, so that throughput, latency
-- and the health of channels are read from a few rows instead of the history. Kept for two hours, the spans of each
-- topic and origin for ten minutes; whoever counts also removes what is older.

-- The whole installation, so that totals are exact and cost the same with any number of topics. `seq_first` and
-- `seq_last` are outbox.seq when the minute was first and last read: the difference is how many notifications were
-- queued, without asking anyone to count them.
CREATE TABLE outboxd.statistics_minute (
    minute    timestamptz PRIMARY KEY,
    seq_first bigint NOT NULL,
    seq_last  bigint NOT NULL,
    published bigint NOT NULL DEFAULT 0,
    sent      bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    retried   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE outboxd.statistics_topic (
    minute  timestamptz NOT NULL,
    topic   text NOT NULL,
    sent    bigint NOT NULL DEFAULT 0,
    failed  bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, topic)
) WITH (fillfactor = 50);

-- origin '' is the whole channel: its URL does not come from data.
CREATE TABLE outboxd.statistics_channel (
    minute        timestamptz NOT NULL,
    channel       text NOT NULL,
    origin        text NOT NULL,
    sent          bigint NOT NULL DEFAULT 0,
    failed        bigint NOT NULL DEFAULT 0,
    unknown       bigint NOT NULL DEFAULT 0,
    last_error    text,
    last_error_at timestamptz,
    PRIMARY KEY (minute, channel, origin)
) WITH (fillfactor = 50);

-- Spans of time as a histogram: bucket b holds spans of about 2^(b/4) ms, so a value read from it is within 9 %.
-- Only buckets that are not empty have a row.
CREATE TABLE outboxd.statistics_span (
    minute  timestamptz NOT NULL,
    measure text NOT NULL,
    subject text NOT NULL,
    origin  text NOT NULL DEFAULT '',
    bucket  smallint NOT NULL,
    count   bigint NOT NULL,
    PRIMARY KEY (minute, measure, subject, origin, bucket),
    -- notify, seen: until SENT, subject is a topic; notify of '': all topics. call: of a provider, subject is a channel.
    CONSTRAINT spans_measure_notify_seen_or_call CHECK (measure IN ('notify', 'seen', 'call'))
) WITH (fillfactor = 50);

-- How many rows wait, work and are dead, as last counted by an instance. Views count for themselves while there is
-- little to count; beyond that they show the snapshot, so that a view of a backlog of any size costs nothing.
CREATE TABLE outboxd.snapshot (
    only_row         boolean PRIMARY KEY DEFAULT true,
    taken_at         timestamptz NOT NULL DEFAULT '-infinity',
    -- How long the count took: the next one is that much rarer.
    cost             interval NOT NULL DEFAULT '0',
    rows             bigint NOT NULL DEFAULT 0,
    ready            bigint NOT NULL DEFAULT 0,
    ready_since      timestamptz,
    -- Too many rows or topics for views to count for themselves.
    is_large         boolean NOT NULL DEFAULT false,
    CONSTRAINT there_is_one_snapshot CHECK (only_row)
) WITH (fillfactor = 50);
INSERT INTO outboxd.snapshot DEFAULT VALUES;

CREATE TABLE outboxd.snapshot_count (
    topic        text NOT NULL,
    status       text NOT NULL,
    count        bigint NOT NULL,
    oldest_since timestamptz,
    PRIMARY KEY (topic, status)
);

-- The same by topic, with what was done in the last hour. Empty unless the snapshot is large.
CREATE TABLE outboxd.snapshot_topic (
    topic         text PRIMARY KEY,
    pending       bigint NOT NULL,
    queued        bigint NOT NULL,
    processing    bigint NOT NULL,
    dead          bigint NOT NULL,
    waiting_since timestamptz,
    sent          bigint NOT NULL,
    failed        bigint NOT NULL,
    retried       bigint NOT NULL
);

-- What waits, by reason, as sql/views/_waits.sql shows it.
CREATE TABLE outboxd.snapshot_waiting (
    reason      text NOT NULL,
    topic       text NOT NULL,
    -- NULL: it has no channel yet.
    channel     text,
    -- Of what is held on purpose: what of the channel is, '' as a whole.
    origin      text,
    limited_by  text,
    per_second  double precision,
    is_lag      boolean NOT NULL,
    count       bigint NOT NULL,
    waits_since timestamptz,
    ready_since timestamptz
);
