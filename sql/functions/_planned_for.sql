-- Whether the role that asks now is one that the plan was made for: see _sees_all(). A role set by SET ROLE between the
-- planning of a prepared statement and its run is the case.
CREATE OR REPLACE FUNCTION outboxd._planned_for(sees_all boolean) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF sees_all = has_function_privilege('outboxd.retry(bigint)', 'EXECUTE') THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'this statement was planned for another role' USING ERRCODE = 'feature_not_supported',
        HINT = 'Run DISCARD PLANS after SET ROLE, or give each role a connection of its own.';
END $$;
