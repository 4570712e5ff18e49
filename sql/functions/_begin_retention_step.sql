-- Where retention goes on in a table: after this id (inbox and idempotency: microseconds since 1970). From the start
-- again if the last scan came to its end and began longer than `rescan` ago. NULL: the lease is not the caller's, and
-- nothing may be deleted.
-- Interleavings: a former owner finds no lease; the progress row keeps two steps apart.
-- Locks: the lease FOR KEY SHARE; the progress row, until the step commits. Index: leader_lease_pkey,
-- retention_progress_pkey.
CREATE OR REPLACE FUNCTION outboxd._begin_retention_step(name text, owner integer, rescan interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    after bigint;
BEGIN
    IF NOT outboxd._owns_lease('retention', _begin_retention_step.owner) THEN
        RETURN NULL;
    END IF;
    UPDATE outboxd.retention_progress p SET position = 0, is_caught_up = false, restarted_at = clock_timestamp()
     WHERE p.name = _begin_retention_step.name AND p.is_caught_up AND p.restarted_at < clock_timestamp() - rescan;
    SELECT p.position INTO after FROM outboxd.retention_progress p WHERE p.name = _begin_retention_step.name FOR UPDATE;
    RETURN after;
END $$;
