-- Publications not confirmed in time: whoever reserved the rows died or lost its queue between reserve and confirm. The
-- rows become due at once, under the same epoch: if the push did arrive, or arrives later, the second message is a
-- copy, and the claim, which raises the epoch, takes one of them.
-- Interleavings: a row that another's open transaction has locked (an operator's cancel() before its COMMIT) waits
-- alone, in a publication of its own that is read again after $1. A row that was claimed while we read may be among
-- these; then it is found not to be published any more.
-- $1 unconfirmed for this long, in ms · $2 publications at most
-- Locks: the publications, then their rows; what is locked is skipped. Index: publication_pkey, outbox_pkey.
WITH cut AS (
    DELETE FROM outboxd.publication p
     WHERE p.id IN (SELECT c.id FROM outboxd.publication c
                     WHERE c.reserved_at < clock_timestamp() - $1::bigint * interval '1 ms' ORDER BY c.id LIMIT $2::int FOR UPDATE SKIP LOCKED)
    RETURNING p.instance, p.ids
), free AS MATERIALIZED (
    SELECT o.id FROM outboxd.outbox o
     WHERE o.id = ANY (ARRAY(SELECT unnest(c.ids) FROM cut c)) AND o.state = 'published' FOR UPDATE SKIP LOCKED
), held AS (
    INSERT INTO outboxd.publication (instance, ids)
    SELECT (SELECT min(c.instance) FROM cut c), array_agg(o.id) FROM outboxd.outbox o
     WHERE o.id = ANY (ARRAY(SELECT unnest(c.ids) FROM cut c)) AND o.state = 'published' AND o.id NOT IN (SELECT f.id FROM free f)
    HAVING count(*) > 0
)
UPDATE outboxd.outbox o SET state = 'ready', retry_at = clock_timestamp(), instance = NULL
 WHERE o.id = ANY (ARRAY(SELECT f.id FROM free f)) AND o.state = 'published'
RETURNING o.id
