-- Domain events for the app's own consumers, kept for their retention; `event_outbox` holds what is still to be
-- appended to the Redis stream of its topic.

CREATE TABLE outboxd.event (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic      text NOT NULL,
    key        text NOT NULL,
    payload    jsonb NOT NULL,
    headers    jsonb,
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(topic) BETWEEN 1 AND 200),
    CONSTRAINT key_has_1_to_512_bytes CHECK (octet_length(key) BETWEEN 1 AND 512),
    CONSTRAINT headers_are_an_object CHECK (jsonb_typeof(headers) = 'object')
);
CREATE INDEX event_topic ON outboxd.event (topic, id);

CREATE TABLE outboxd.event_outbox (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The idempotent receiver of a consuming service.
CREATE TABLE outboxd.inbox (
    consumer    text NOT NULL,
    message_id  text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    responded_at timestamptz,
    response    jsonb,
    PRIMARY KEY (consumer, message_id),
    CONSTRAINT consumer_has_1_to_200_bytes CHECK (octet_length(consumer) BETWEEN 1 AND 200),
    CONSTRAINT message_id_has_1_to_512_bytes CHECK (octet_length(message_id) BETWEEN 1 AND 512),
    CONSTRAINT responses_and_only_they_have_responded_at CHECK ((response IS NULL) = (responded_at IS NULL))
);
CREATE INDEX inbox_received ON outboxd.inbox (received_at);
