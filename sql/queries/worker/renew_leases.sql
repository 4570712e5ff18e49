-- Calls that are still under way keep their rows.
-- Interleavings: a row that somebody has locked is passed over and asked for again soon, so that an operator's open
-- transaction costs no other call its lease. A sweep passes over it as well, for as long as it is locked and a little
-- longer. The rows are named by one array, in order, and the token of each is found by its position there, by halving.
-- $1 ids, ascending, each once · $2 tokens · $3 lease in ms
-- Locks: the rows (HOT); what is locked is skipped. Index: outbox_pkey.
UPDATE outboxd.outbox o SET lease_until = clock_timestamp() + $3::bigint * interval '1 ms'
 WHERE o.id = ANY (ARRAY(
           SELECT w.id FROM outboxd.outbox w
            WHERE w.id = ANY ($1::bigint[]) AND w.epoch = ($2::int[])[width_bucket(w.id, $1::bigint[])] AND w.state = 'processing'
            FOR NO KEY UPDATE SKIP LOCKED))
RETURNING o.id, o.epoch
