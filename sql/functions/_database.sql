-- This database among all: its server's data and its oid. Where the server does not tell, the installation stands in.
-- Locks: none.
CREATE OR REPLACE FUNCTION outboxd._database() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(outboxd._system_identifier()::text, (SELECT s.install_id FROM outboxd.setting s)) || '/' || d.oid
      FROM pg_database d WHERE d.datname = current_database()
$$;
