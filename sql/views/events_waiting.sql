-- Events that are not yet in the stream of their topic: those without a publication, and the one reservation that Redis
-- is not known to have (at most 500 publications; the limit keeps to the end of the index).
CREATE OR REPLACE VIEW outboxd.events_waiting AS
SELECT w.topic, sum(w.events)::bigint AS count, greatest(clock_timestamp() - min(w.since), '0') AS oldest_age
  FROM (SELECT o.topic, count(*) AS events, min(o.since) AS since FROM outboxd.event_outbox o GROUP BY o.topic
        UNION ALL
        (SELECT p.topic, cardinality(p.event_ids), p.since FROM outboxd.event_publication p
          WHERE p.number > (SELECT g.appended FROM outboxd.event_progress g) ORDER BY p.number LIMIT 500)) w
 GROUP BY w.topic;

COMMENT ON VIEW outboxd.events_waiting IS
    'Events of publish() and replay_events() that are not yet in the Redis stream of their topic.';
COMMENT ON COLUMN outboxd.events_waiting.topic IS 'What they are about.';
COMMENT ON COLUMN outboxd.events_waiting.count IS 'How many; for up to a second some that have just been appended count too.';
COMMENT ON COLUMN outboxd.events_waiting.oldest_age IS 'How long the oldest has waited.';
