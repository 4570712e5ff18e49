-- What tells this server's data from all others'; a standby shares it with its primary. NULL: this login may not ask.
-- Locks: none.
CREATE OR REPLACE FUNCTION outboxd._system_identifier() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT s.system_identifier FROM pg_control_system() s);
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$;
