-- Topics seen in lane 0 get lanes of their own for the rows to come, as long as there are fewer than $2.
-- $1 ids of rows just published from lane 0 · $2 topics at most
-- Locks: new rows of topic only. Index: notification_log_pkey, topic_name_key.
INSERT INTO outboxd.topic (name)
SELECT DISTINCT l.topic FROM outboxd.notification_log l
 WHERE l.id = ANY ($1::bigint[]) AND (SELECT count(*) FROM outboxd.topic) < $2::bigint
ON CONFLICT (name) DO NOTHING
