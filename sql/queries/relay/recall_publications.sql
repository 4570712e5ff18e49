-- Publications not confirmed in time: whoever reserved the rows died or lost its queue between reserve and confirm. The rows
-- become due at once, under the same epoch: if the push did arrive, or arrives later, the second message is a copy, and the
-- claim, which raises the epoch, takes one of them.
-- $1 unconfirmed for this long, in ms · $2 publications at most
-- Locks: the publications, then their rows. Index: publication_pkey, outbox_pkey.
WITH cut AS (
    DELETE FROM outboxd.publication p
     WHERE p.id IN (SELECT c.id FROM outboxd.publication c
                     WHERE c.reserved_at < clock_timestamp() - $1::bigint * interval '1 ms' ORDER BY c.id LIMIT $2::int FOR UPDATE SKIP LOCKED)
    RETURNING p.ids
)
UPDATE outboxd.outbox o SET state = 'ready', retry_at = clock_timestamp(), instance = NULL
 WHERE o.id = ANY (ARRAY(SELECT unnest(c.ids) FROM cut c)) AND o.state = 'published'
RETURNING o.id
