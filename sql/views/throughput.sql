-- What got done, from the rollups: 60 rows at most.
CREATE OR REPLACE VIEW outboxd.throughput AS
SELECT m.minute,
       -- Rows that Postgres has inserted into the outbox, from where the minute before ended; a minute nobody looked at counts
       -- with the next. A crash of the server sets its count to 0.
       CASE WHEN m.seq_last < lag(m.seq_last) OVER (ORDER BY m.minute) THEN m.seq_last
            ELSE m.seq_last - coalesce(lag(m.seq_last) OVER (ORDER BY m.minute), m.seq_first) END AS queued,
       coalesce(t.sent, 0) AS sent, coalesce(t.failed, 0) AS failed, coalesce(t.retried, 0) AS retried
  FROM outboxd.rollup_minute m
  LEFT JOIN (SELECT r.minute, sum(r.sent)::bigint AS sent, sum(r.failed)::bigint AS failed, sum(r.retried)::bigint AS retried
               FROM outboxd.rollup_topic r WHERE r.minute > now() - interval '1 hour' GROUP BY 1) t ON t.minute = m.minute
 WHERE m.minute > now() - interval '1 hour';

COMMENT ON VIEW outboxd.throughput IS 'What got done in each minute of the last hour, all instances together. Minutes in which no instance ran have no row.';
COMMENT ON COLUMN outboxd.throughput.minute IS 'When the minute began. The current one is still filling, a few seconds behind.';
COMMENT ON COLUMN outboxd.throughput.queued IS 'Notifications that became QUEUED: written by the app, due, or retried by an operator, as Postgres counts them, some seconds behind. Rolled-back ones are among them.';
COMMENT ON COLUMN outboxd.throughput.sent IS 'Notifications that became SENT.';
COMMENT ON COLUMN outboxd.throughput.failed IS 'Notifications that became FAILED: dead letters.';
COMMENT ON COLUMN outboxd.throughput.retried IS 'Attempts that failed and are followed by another.';
