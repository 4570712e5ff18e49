-- Removes counts older than two hours, spans of single topics and origins older than ten minutes, reports of instances
-- that are gone, what is not held any more and was not refused for an hour, and bulk actions that ended 30 days ago.
-- Interleavings: nobody adds to what is that old. A channel that is refused, held or paused at the same time has its row
-- locked, and we look at it again; after us it is written anew.
-- Parameters: none. Locks: the rows removed. Index: the primary keys, which begin with the minute.
WITH minute AS (
    DELETE FROM outboxd.statistics_minute WHERE minute < now() - interval '2 hours'
), topic AS (
    DELETE FROM outboxd.statistics_topic WHERE minute < now() - interval '2 hours'
), span AS (
    DELETE FROM outboxd.statistics_span s
     WHERE s.minute < now() - interval '10 min' AND (s.subject <> '' OR s.minute < now() - interval '2 hours')
), channel AS (
    DELETE FROM outboxd.statistics_channel WHERE minute < now() - interval '2 hours'
), free AS (
    DELETE FROM outboxd.channel_state h
     WHERE h.paused_at IS NULL AND (h.reason IS NULL OR h.reason = 'retry_after' AND h.held_until < now() - interval '1 hour')
       AND greatest(h.changed_at, h.refused_at) < now() - interval '1 hour'
), report AS (
    DELETE FROM outboxd.instance_report WHERE reported_at < now() - interval '1 day'
)
DELETE FROM outboxd.bulk_action WHERE ended_at < now() - interval '30 days'
