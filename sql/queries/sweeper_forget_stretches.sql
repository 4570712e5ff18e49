-- Stretches of which no row waits to be claimed any more.
-- Interleavings: nothing becomes ready again without a timer, but for rows parked by a pause, and resume() ends the stretches of
-- its lane.
-- Locks: the stretches. Index: publication_stretch, outbox_lane.
DELETE FROM outboxd.publication p
 WHERE p.lane IS NOT NULL AND p.pushed_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM outboxd.outbox o
                    WHERE o.lane = p.lane AND o.seq BETWEEN p.seq_from AND p.seq_to AND o.state = 0 AND o.retry_at IS NULL OFFSET 0)
