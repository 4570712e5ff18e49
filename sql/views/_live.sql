-- The live rows, each with its channel by its route and the limit that concerns it now, as far as instances report one.
-- Those of the channel's own come first, then its topic's share, then what is left: too few calls at once, and of a row
-- that was put back for an origin, that origin's.
-- What the instances can do is asked once and looked up from there: as a part of each row it would be sorted and spilled
-- with it, all routes of the configuration in each.
-- Locks: none. Index: those of _routed; route_pkey.
CREATE OR REPLACE VIEW outboxd._live AS
WITH w AS MATERIALIZED (
    SELECT r.* FROM outboxd._routed r
)
SELECT o.id, o.topic, o.seq, o.state, o.attempts, o.instance, o.ordering_key, o.published_at, o.lease_until, o.retry_at, o.waits_for,
       coalesce(own.channel, fallback.channel) AS channel,
       NOT (SELECT w.has_default FROM w) AND (NOT (SELECT w.published FROM w) ?| ARRAY[o.topic, 'default']
                                              OR NOT (SELECT w.called FROM w) ?| ARRAY[o.topic, 'default']) AS is_routeless,
       CASE WHEN l.reached ->> 0 IN ('rate_limit', 'max_in_flight') THEN l.reached ->> 0
            WHEN l.share IS NOT NULL THEN 'share of topic'
            WHEN o.waits_for <> '' OR l.reached ->> 0 <> 'max_in_flight_per_origin' THEN l.reached ->> 0 END AS limited_by,
       CASE WHEN l.reached ->> 0 IN ('rate_limit', 'max_in_flight') OR l.share IS NULL THEN l.reached ->> 1 ELSE l.share END::float8 AS per_second
  FROM outboxd.outbox o
  LEFT JOIN outboxd._route own ON own.topic = o.topic
        AND CASE WHEN own.position < o.route_step THEN own.is_last ELSE own.position = o.route_step END
  LEFT JOIN outboxd._route fallback ON own.topic IS NULL AND fallback.topic = 'default'
        AND CASE WHEN fallback.position < o.route_step THEN fallback.is_last ELSE fallback.position = o.route_step END
 CROSS JOIN LATERAL (
       SELECT (SELECT w.limits FROM w) -> coalesce(own.channel, fallback.channel) AS reached, (SELECT w.shares FROM w) ->> o.topic AS share) l;
