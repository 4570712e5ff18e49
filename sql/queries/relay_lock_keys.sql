-- First half of an admission: lock, then look. In one transaction with relay_admit_heads, which then sees what the
-- last holder of the lock committed. Keys are locked in one order.
-- $1 ordering keys
-- Locks: one advisory lock per key, until the end of the transaction.
SELECT pg_advisory_xact_lock(7071, h.hash)
  FROM (SELECT DISTINCT hashtext(k) AS hash FROM unnest($1::text[]) k ORDER BY 1) h
