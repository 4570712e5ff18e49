-- How far a step of retention came, and whether what follows is too young. Returns the latter.
-- Locks: the progress row, which _begin_retention_step() has locked already. Index: retention_progress_pkey.
CREATE OR REPLACE FUNCTION outboxd._end_retention_step(name text, through bigint, is_caught_up boolean) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE outboxd.retention_progress p
       SET position = coalesce(_end_retention_step.through, p.position), is_caught_up = _end_retention_step.is_caught_up
     WHERE p.name = _end_retention_step.name
    RETURNING p.is_caught_up
$$;
