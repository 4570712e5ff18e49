-- Numbers were set back, by a restore that forgot their sequence: nothing is settled.
-- $1 the highest number drawn
-- Locks: the rows. Index: none, the table is small.
UPDATE outboxd.lane SET settled_to = 0 WHERE settled_to > $1::bigint
