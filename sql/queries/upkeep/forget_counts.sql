-- Removes counts older than two hours, spans of single topics and origins older than ten minutes, reports of instances that are gone, and bulk actions that ended 30 days ago.
-- Interleavings: nobody adds to what is that old.
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
), report AS (
    DELETE FROM outboxd.instance_report WHERE reported_at < now() - interval '1 day'
)
DELETE FROM outboxd.bulk_action WHERE ended_at < now() - interval '30 days'
