-- Publications not confirmed in time: whoever reserved the rows died or lost its queue between reserve and confirm. The
-- rows become due at once under the same epoch; if the push did arrive, the second message is a copy.
-- $1 unconfirmed for this long, in ms
-- Locks: the publications, then their rows. Index: none: one pass over the active set, only if there are any: a join would begin
-- with the pass.
WITH cut AS (
    DELETE FROM outboxd.publication p
     WHERE p.id IN (SELECT c.id FROM outboxd.publication c
                     WHERE c.reserved_at < clock_timestamp() - $1::bigint * interval '1 ms' FOR UPDATE SKIP LOCKED)
    RETURNING p.id
)
UPDATE outboxd.outbox o SET state = 0, retry_at = clock_timestamp(), instance = NULL
 WHERE EXISTS (SELECT FROM cut) AND o.state = 1 AND o.batch = ANY (ARRAY(SELECT c.id FROM cut c))
RETURNING o.id
