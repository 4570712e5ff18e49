-- One step of retention up a table by time: of the rows older than `kept` the oldest ones past the last step are
-- deleted. One that committed long after its time is found by the next scan.
-- Interleavings: those of _begin_retention_step(). Who has locked a row is passed over; who comes while it is deleted
-- waits for this one short statement and is then the first. is_caught_up is NULL if the lease is not the owner's.
-- Locks: the rows deleted; the table's progress row; the lease FOR KEY SHARE. Index: the one on the time, then by ctid.
CREATE OR REPLACE FUNCTION outboxd._delete_older_by_time(table_name text, at text, owner integer, rows integer, kept interval, rescan interval)
    RETURNS TABLE (is_caught_up boolean, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    after   bigint := outboxd._begin_retention_step(table_name, owner, rescan);
    through timestamptz;
BEGIN
    IF after IS NOT NULL THEN
        EXECUTE format('WITH over AS MATERIALIZED (
                            SELECT x.ctid FROM outboxd.%1$I x WHERE x.%2$I >= $1 AND x.%2$I < clock_timestamp() - $3
                             ORDER BY x.%2$I LIMIT $2 FOR UPDATE SKIP LOCKED
                        ), gone AS (
                            DELETE FROM outboxd.%1$I x WHERE x.ctid = ANY (ARRAY(SELECT o.ctid FROM over o)) RETURNING x.%2$I AS at
                        )
                        SELECT max(g.at), count(*) < $2, count(*) FROM gone g', table_name, at)
           INTO through, is_caught_up, deleted USING 'epoch'::timestamptz + after * interval '1 microsecond', rows, kept;
        is_caught_up := outboxd._end_retention_step(table_name, (extract(epoch FROM through) * 1000000)::bigint, is_caught_up);
    END IF;
    RETURN NEXT;
END $$;
