-- Adds an instance's counts to those of the current minute. Answers with the database's clock.
-- Interleavings: instances add at once; each waits for the other's row and adds to what it finds.
-- $1 messages published · $2 topics · $3 sent · $4 failed · $5 retried
-- $6 measures · $7 subjects · $8 origins · $9 buckets · $10 spans in each
-- $11 channels · $12 origins · $13 sent · $14 failed · $15 unknown · $16 last errors
-- How many were queued is told by the sequence of release numbers; nobody counts them.
-- Locks: the rows of this minute, each table's in the order of its key. Index: the primary keys.
WITH clock AS MATERIALIZED (
    SELECT date_trunc('minute', clock_timestamp()) AS minute, coalesce(pg_sequence_last_value('outboxd.outbox_seq'::regclass), 0) AS seq
), minute AS (
    INSERT INTO outboxd.statistics_minute AS r (minute, seq_first, seq_last, published, sent, failed, retried)
    SELECT c.minute, c.seq, c.seq, $1::bigint, t.sent, t.failed, t.retried
      FROM clock c, (SELECT coalesce(sum(u.sent), 0)::bigint AS sent, coalesce(sum(u.failed), 0)::bigint AS failed,
                            coalesce(sum(u.retried), 0)::bigint AS retried
                       FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) u(sent, failed, retried)) t
    ON CONFLICT (minute) DO UPDATE
       SET seq_last = greatest(r.seq_last, excluded.seq_last), published = r.published + excluded.published,
           sent = r.sent + excluded.sent, failed = r.failed + excluded.failed, retried = r.retried + excluded.retried
), topic AS (
    INSERT INTO outboxd.statistics_topic AS r (minute, topic, sent, failed, retried)
    SELECT c.minute, u.topic, u.sent, u.failed, u.retried
      FROM clock c, unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) u(topic, sent, failed, retried) ORDER BY u.topic
    ON CONFLICT (minute, topic) DO UPDATE
       SET sent = r.sent + excluded.sent, failed = r.failed + excluded.failed, retried = r.retried + excluded.retried
), span AS (
    INSERT INTO outboxd.statistics_span AS r (minute, measure, subject, origin, bucket, count)
    SELECT c.minute, u.measure, u.subject, u.origin, u.bucket, u.count
      FROM clock c, unnest($6::text[], $7::text[], $8::text[], $9::smallint[], $10::bigint[]) u(measure, subject, origin, bucket, count)
     ORDER BY u.measure, u.subject, u.origin, u.bucket
    ON CONFLICT (minute, measure, subject, origin, bucket) DO UPDATE SET count = r.count + excluded.count
), channel AS (
    INSERT INTO outboxd.statistics_channel AS r (minute, channel, origin, sent, failed, unknown, last_error, last_error_at)
    SELECT c.minute, u.channel, u.origin, u.sent, u.failed, u.unknown, u.error, CASE WHEN u.error IS NOT NULL THEN clock_timestamp() END
      FROM clock c, unnest($11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[])
                    u(channel, origin, sent, failed, unknown, error)
     ORDER BY u.channel, u.origin
    ON CONFLICT (minute, channel, origin) DO UPDATE
       SET sent = r.sent + excluded.sent, failed = r.failed + excluded.failed, unknown = r.unknown + excluded.unknown,
           last_error = coalesce(excluded.last_error, r.last_error), last_error_at = coalesce(excluded.last_error_at, r.last_error_at)
)
SELECT clock_timestamp()
