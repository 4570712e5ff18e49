-- Where a notification is, by the id that notify() or RETURNING gave: for apps, which do not read the views. One
-- snapshot of both rows, so a row that is between two states is in one of them. Locks: none. Index:
-- notification_log_pkey, outbox_pkey.
CREATE OR REPLACE FUNCTION outboxd.status(id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN o.state = 'processing' THEN 'PROCESSING' ELSE l.status::text END
      FROM outboxd.notification_log l LEFT JOIN outboxd.outbox o ON o.id = l.id AND l.status = 'QUEUED'
     WHERE l.id = status.id
$$;

COMMENT ON FUNCTION outboxd.status IS
    'PENDING, QUEUED, PROCESSING, SENT, FAILED or CANCELED; NULL if there is no such notification (its retention may have passed).';
