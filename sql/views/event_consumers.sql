-- The consumer groups of the events' streams, as an instance last saw them in Redis.
CREATE OR REPLACE VIEW outboxd.event_consumers AS
SELECT g.topic, g.name AS consumer_group, g.behind, g.stream_max, g.cut_at, g.cut_events, g.cut_from, g.seen_at
  FROM outboxd.event_group g;

COMMENT ON VIEW outboxd.event_consumers IS
    'The consumer groups of the events'' Redis streams: how far behind, and whether the stream dropped what they still needed.';
COMMENT ON COLUMN outboxd.event_consumers.topic IS 'The stream''s topic.';
COMMENT ON COLUMN outboxd.event_consumers.consumer_group IS 'The group''s name in Redis.';
COMMENT ON COLUMN outboxd.event_consumers.behind IS
    'Entries from the oldest one that the group has not acknowledged to the end of the stream.';
COMMENT ON COLUMN outboxd.event_consumers.stream_max IS 'Entries that the stream keeps, about (events.stream_max).';
COMMENT ON COLUMN outboxd.event_consumers.cut_at IS
    'When the stream was last seen to have dropped what the group still needed; NULL: never, or replayed since.';
COMMENT ON COLUMN outboxd.event_consumers.cut_events IS 'How many entries that were.';
COMMENT ON COLUMN outboxd.event_consumers.cut_from IS
    'From when on the group lacks events: what replay_events(topic, since) brings back; NULL: no longer kept.';
COMMENT ON COLUMN outboxd.event_consumers.seen_at IS 'When an instance last read it, every few seconds.';
