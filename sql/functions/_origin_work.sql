-- What is to be done about a copy: notifications up to this id are being set aside, and nothing up to it may be published
-- or claimed meanwhile; 0: nothing; -1: what was set aside goes back or is canceled.
-- Locks: none.
CREATE OR REPLACE FUNCTION outboxd._origin_work() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE o.phase WHEN 'setting aside' THEN greatest(o.log_through, 1) WHEN 'own' THEN 0 WHEN 'waiting' THEN 0 ELSE -1 END
      FROM outboxd.origin o
$$;
