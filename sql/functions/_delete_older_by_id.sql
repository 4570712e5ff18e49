-- One step of retention up a table by id: of the next `rows` rows those older than `kept` are deleted; the first
-- younger one ends the scan for now. Nothing updates these rows, but for runs that are open: they have no time and
-- stay.
-- Interleavings: those of _begin_retention_step(). is_caught_up is NULL if the lease is not the owner's.
-- Locks: the rows deleted; the table's progress row; the lease FOR KEY SHARE. Index: the primary key.
CREATE OR REPLACE FUNCTION outboxd._delete_older_by_id(table_name text, at text, owner integer, rows integer, kept interval, rescan interval)
    RETURNS TABLE (is_caught_up boolean, deleted bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    after   bigint := outboxd._begin_retention_step(table_name, owner, rescan);
    through bigint;
BEGIN
    IF after IS NOT NULL THEN
        EXECUTE format('WITH seen AS MATERIALIZED (
                            SELECT x.id, x.%2$I < clock_timestamp() - $3 AS is_over FROM outboxd.%1$I x WHERE x.id > $1 ORDER BY x.id LIMIT $2
                        ), gone AS (
                            DELETE FROM outboxd.%1$I x USING seen s WHERE x.id = s.id AND s.is_over RETURNING x.id
                        )
                        SELECT max(g.id), count(*) < $2, count(*) FROM gone g', table_name, at)
           INTO through, is_caught_up, deleted USING after, rows, kept;
        is_caught_up := outboxd._end_retention_step(table_name, through, is_caught_up);
    END IF;
    RETURN NEXT;
END $$;
