-- A backlog is published by stretches: one row says "of this lane, from this number to that", instead of a mark in every row.
-- Reserving wrote each row of a backlog once more; now only its claim does. ARCHITECTURE.md has the figures.
--
-- A stretch must not cover a row that nobody has seen. So it lies below `settled_to`: every transaction that could have drawn a
-- number up to there has ended. Above, rows are reserved one by one, as before. A stretch stays until none of its rows waits to
-- be claimed; a ready row (state 0, without a timer) that no stretch covers is unpublished.

-- Read by every scan of a lane that ever had a backlog; written when one has got further.
CREATE TABLE outboxd.lane (
    lane       integer PRIMARY KEY,
    settled_to bigint NOT NULL DEFAULT 0
);

-- A publication is named by its rows (`outbox.batch`) and ends when it is confirmed, or it is a stretch and names them.
ALTER TABLE outboxd.publication
    ADD COLUMN lane      integer,
    ADD COLUMN seq_from  bigint,
    ADD COLUMN seq_to    bigint,
    -- It is known to have arrived in the queue. Of others that is their end.
    ADD COLUMN pushed_at timestamptz;
-- Of two relays that are about to publish the same stretch one does.
CREATE UNIQUE INDEX publication_stretch ON outboxd.publication (lane, seq_from) WHERE lane IS NOT NULL;
