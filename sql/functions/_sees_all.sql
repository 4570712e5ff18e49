-- Whether whoever asks a view sees recipients, payloads and answers: whoever may act does, a reader does not.
--
-- IMMUTABLE although it depends on the role: so it is asked once, when a statement is planned, and what a view shows is
-- then a plain column again, which an index finds. What is not true of it is made up for by _planned_for(), which each of
-- these views asks once when it is read: a plan that was made for another role raises instead of showing.
CREATE OR REPLACE FUNCTION outboxd._sees_all() RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN has_function_privilege('outboxd.retry(bigint)', 'EXECUTE');
END $$;
