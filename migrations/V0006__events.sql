-- Domain events for the app's own consumers, kept for their retention, and what their Redis streams hold of them.
--
-- `event_outbox` is what waits. One instance at a time, under the lease `events`, moves it into `event_publication`,
-- which is the order of the streams for good, and appends publications by their number. Redis keeps the number it has
-- come to, raised in the same script as the append: what is numbered above it is not in the streams, whether it was
-- never appended or lost, and is appended next.

CREATE TABLE outboxd.event (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic      text NOT NULL,
    key        text NOT NULL,
    payload    jsonb NOT NULL,
    headers    jsonb,
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(topic) BETWEEN 1 AND 200),
    CONSTRAINT key_has_1_to_512_bytes CHECK (octet_length(key) BETWEEN 1 AND 512),
    CONSTRAINT headers_are_an_object CHECK (jsonb_typeof(headers) = 'object'),
    CONSTRAINT headers_have_at_most_16_kib CHECK (octet_length(headers::text) <= 16384)
);
CREATE INDEX event_topic ON outboxd.event (topic, id);

CREATE TABLE outboxd.event_outbox (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id bigint NOT NULL,
    topic    text NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Events of one topic that are appended together. Kept as long as events are.
CREATE TABLE outboxd.event_publication (
    number     bigint PRIMARY KEY,
    -- The position of its last event in the stream.
    through    bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Since when the first of its events waits.
    since      timestamptz NOT NULL,
    bytes      integer NOT NULL,
    topic      text NOT NULL,
    event_ids  bigint[] NOT NULL,
    CONSTRAINT publications_have_events CHECK (cardinality(event_ids) > 0)
);
CREATE INDEX event_publication_topic ON outboxd.event_publication (topic, through);

-- How many entries were ever put on a topic's stream: the position of the last one.
CREATE TABLE outboxd.event_stream (
    topic    text PRIMARY KEY,
    position bigint NOT NULL
) WITH (fillfactor = 50);

-- One row: the last number given, the last one known to be in Redis, and the last loss.
CREATE TABLE outboxd.event_progress (
    only_row    boolean PRIMARY KEY DEFAULT true,
    newest      bigint NOT NULL DEFAULT 0,
    appended    bigint NOT NULL DEFAULT 0,
    lost_at     timestamptz,
    restored_at timestamptz,
    restored    bigint NOT NULL DEFAULT 0,
    CONSTRAINT there_is_one_row_of_event_progress CHECK (only_row),
    CONSTRAINT only_what_was_lost_is_restored CHECK (lost_at IS NOT NULL OR restored_at IS NULL)
) WITH (fillfactor = 50);
INSERT INTO outboxd.event_progress DEFAULT VALUES;

-- The consumer groups of the streams, as last seen. `needs` is the position of the entry after `delivered_id`, the last
-- one that the group was given, as it was when that was first seen: if the stream begins later, entries were cut before
-- the group had them. `gone` counts entries that it was given, has not acknowledged and that the stream no longer
-- holds; `pending` is the position of the oldest one that it still holds.
CREATE TABLE outboxd.event_group (
    topic        text NOT NULL,
    name         text NOT NULL,
    delivered_id text NOT NULL,
    needs        bigint,
    pending      bigint,
    gone         bigint NOT NULL,
    behind       bigint NOT NULL,
    stream_max   bigint NOT NULL,
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    cut_at       timestamptz,
    cut_from     timestamptz,
    cut_events   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name)
) WITH (fillfactor = 50);

-- The idempotent receiver of a consuming service. A receipt belongs to the login that wrote it, or to the role whose
-- members share those of this consumer: another login that uses the same names has receipts of its own. By name, which
-- a restore into another cluster keeps.
CREATE TABLE outboxd.inbox (
    consumer    text NOT NULL,
    message_id  text NOT NULL,
    owner       text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    responded_at timestamptz,
    response    jsonb,
    PRIMARY KEY (consumer, message_id, owner),
    CONSTRAINT consumer_has_1_to_200_bytes CHECK (octet_length(consumer) BETWEEN 1 AND 200),
    CONSTRAINT message_id_has_1_to_512_bytes CHECK (octet_length(message_id) BETWEEN 1 AND 512),
    CONSTRAINT response_has_at_most_256_kib CHECK (octet_length(response::text) <= 262144),
    CONSTRAINT responses_and_only_they_have_responded_at CHECK ((response IS NULL) = (responded_at IS NULL))
);
CREATE INDEX inbox_received ON outboxd.inbox (received_at);

-- The roles whose members share a consumer's receipts: see share_consumer().
CREATE TABLE outboxd.inbox_group (
    consumer text NOT NULL,
    role     text NOT NULL,
    PRIMARY KEY (consumer, role)
);
