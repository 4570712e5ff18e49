-- Whether a leader lease is this owner's now. If so it stays its until the transaction ends.
-- Interleavings: who asks for it (upkeep/acquire_leader_lease, FOR UPDATE) passes over a lease that is locked here; a
-- former owner that wakes up late finds another's and is told so.
-- Locks: the lease FOR KEY SHARE. Index: leader_lease_pkey.
CREATE OR REPLACE FUNCTION outboxd._owns_lease(name text, owner integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM outboxd.leader_lease l
      WHERE l.name = _owns_lease.name AND l.owner = _owns_lease.owner AND l.until > clock_timestamp() FOR KEY SHARE;
    RETURN FOUND;
END $$;
