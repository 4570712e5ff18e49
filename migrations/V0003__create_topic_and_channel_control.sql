-- Topics the relay knows. Each has a lane of its own in the outbox, so that topics get fair turns and a paused
-- topic is simply not scanned. The app's transaction only reads this table: a topic it does not find gets lane
-- 0, and the relay assigns the lane later, so that no app waits for another to register a topic.

CREATE TABLE outboxd.topic (
    lane        integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name        text NOT NULL UNIQUE,
    paused_at   timestamptz,
    -- Raised by resume(): relays look at the whole lane again.
    rewinds     integer NOT NULL DEFAULT 0,
    CONSTRAINT lane_0_means_unassigned CHECK (lane > 0)
);

-- What holds a channel, for every instance: an operator's pause, an open circuit, a provider's Retry-After.
-- origin '' speaks for the whole channel.
CREATE TABLE outboxd.channel_hold (
    channel     text NOT NULL,
    origin      text NOT NULL DEFAULT '',
    paused_at   timestamptz,
    held_until  timestamptz,
    reason      text,
    opened      integer NOT NULL DEFAULT 0,
    probe_by    integer,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, origin),
    CONSTRAINT only_whole_channels_are_paused CHECK (paused_at IS NULL OR origin = '')
);
