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
    -- How often in a row the circuit opened.
    openings    integer NOT NULL DEFAULT 0,
    -- Who may make the one call that shows whether the provider is back, and until when.
    probe_by    integer,
    probe_until timestamptz,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, origin),
    CONSTRAINT only_whole_channels_are_paused CHECK (paused_at IS NULL OR origin = ''),
    CONSTRAINT holds_and_only_they_have_a_reason CHECK ((held_until IS NULL) = (reason IS NULL)),
    CONSTRAINT probes_have_an_owner_and_an_end CHECK ((probe_by IS NULL) = (probe_until IS NULL))
);
