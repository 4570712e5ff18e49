-- Why a notification waits, if that is known: nobody runs, or what the view stuck says of it.
-- $1 notification
-- Locks: none. Index: those of the view.
SELECT CASE WHEN NOT EXISTS (SELECT FROM outboxd.workers) THEN 'no instance runs'
            ELSE (SELECT s.reason FROM outboxd.stuck s WHERE s.id = $1::bigint LIMIT 1) END
