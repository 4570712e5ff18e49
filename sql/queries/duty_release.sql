-- Gives a duty up, so that nobody has to wait for the lease to run out. Only the owner's.
-- $1 duty · $2 instance
-- Locks: the duty's row. Index: duty_pkey.
UPDATE outboxd.duty SET owner = NULL, until = NULL, since = NULL WHERE name = $1::text AND owner = $2::int
