-- Topics seen in lane 0 get lanes of their own for the rows to come, as long as there are fewer than $2.
-- $1 ids of rows just published from lane 0 · $2 topics at most
-- A row that has ended meanwhile has its letter in the log.
-- Locks: new rows of topic only. Index: outbox_pkey, notification_log_pkey, topic_name_key.
INSERT INTO outboxd.topic (name)
SELECT n.topic
  FROM (SELECT o.topic FROM outboxd.outbox o WHERE o.id = ANY ($1::bigint[]) AND o.topic IS NOT NULL
        UNION
        SELECT l.topic FROM outboxd.notification_log l WHERE l.id = ANY ($1::bigint[])) n
 WHERE (SELECT count(*) FROM outboxd.topic) < $2::bigint
ON CONFLICT (name) DO NOTHING
