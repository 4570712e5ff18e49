-- Whose receipts of this consumer the session reads and writes: the role's with whose members its login shares them, the
-- first by name, else the login's own. The login is what Postgres let in: neither SET ROLE nor a SECURITY DEFINER caller
-- changes it.
-- Locks: none. Index: inbox_group_pkey.
CREATE OR REPLACE FUNCTION outboxd._receipts_of(consumer text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((SELECT min(g.role) FROM outboxd.inbox_group g
                      WHERE g.consumer = _receipts_of.consumer AND pg_has_role(session_user, to_regrole(quote_ident(g.role)), 'MEMBER')),
                    session_user);
END $$;
