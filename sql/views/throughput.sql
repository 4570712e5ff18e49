-- What got done, from the statistics by the minute: 60 rows at most. Locks: none. Index: the primary keys.
CREATE OR REPLACE VIEW outboxd.throughput AS
SELECT m.minute,
       -- Release numbers drawn since the minute before ended; a minute nobody read counts with the next. Where the
       -- sequence was set back, as by a restore, the minute counts from its own beginning: least() passes over NULL.
       m.seq_last - least(lag(m.seq_last) OVER (ORDER BY m.minute), m.seq_first) AS queued,
       m.sent, m.failed, m.retried
  FROM outboxd.statistics_minute m
 WHERE m.minute > now() - interval '1 hour';

COMMENT ON VIEW outboxd.throughput IS
    'What got done in each minute of the last hour, all instances together. Minutes in which no instance ran have no row.';
COMMENT ON COLUMN outboxd.throughput.minute IS
    'When the minute began. The current one is still filling, a few seconds behind.';
COMMENT ON COLUMN outboxd.throughput.queued IS
    'Notifications that became QUEUED: written by the app, due, or retried by an operator, some seconds behind. Rolled-back '
    'ones are among them.';
COMMENT ON COLUMN outboxd.throughput.sent IS 'Notifications that became SENT.';
COMMENT ON COLUMN outboxd.throughput.failed IS 'Notifications that became FAILED: dead letters.';
COMMENT ON COLUMN outboxd.throughput.retried IS 'Attempts that failed and are followed by another.';
