-- Why a notification waits, if there is something to say: nobody runs, or the reason that why() gives. What goes on by itself
-- in a moment, or has its time, is none.
-- $1 notification
-- Locks: none. Index: those of the function.
SELECT CASE WHEN NOT EXISTS (SELECT FROM outboxd.workers) THEN 'no instance runs'
            ELSE (SELECT nullif(w.reason, CASE WHEN w.reason IN ('not due yet', 'waiting for a producer', 'waiting for the relay', 'in the queue',
                                                                 'being sent', 'waiting for retry') THEN w.reason END)
                    FROM outboxd.why($1::bigint) w) END
