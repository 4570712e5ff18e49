-- Why a channel is held, for every instance: an operator's pause, an open circuit, a provider's Retry-After.
-- origin '' speaks for the whole channel.
CREATE TABLE outboxd.channel_state (
    channel     text NOT NULL,
    origin      text NOT NULL DEFAULT '',
    paused_at   timestamptz,
    held_until  timestamptz,
    reason      text,
    -- Whether held_until is what the provider asked for (Retry-After).
    is_asked    boolean NOT NULL DEFAULT false,
    -- Since when it is held, however often the circuit opened again.
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A keyed digest of what the channel called with when the circuit opened: url, headers, body, secrets, constants. The
    -- key is the installation's.
    credentials text,
    -- How often in a row the circuit opened.
    openings    integer NOT NULL DEFAULT 0,
    -- How many 401 and 403 in a row the instances heard together while it was not held, and when the last one.
    refused     integer NOT NULL DEFAULT 0,
    refused_at  timestamptz,
    -- Who may make the one call that shows whether the provider is back, and until when.
    probe_by    integer,
    probe_until timestamptz,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, origin),
    CONSTRAINT only_whole_channels_are_paused CHECK (paused_at IS NULL OR origin = ''),
    CONSTRAINT what_is_held_and_only_that_has_a_reason CHECK ((held_until IS NULL) = (reason IS NULL)),
    CONSTRAINT probes_have_an_owner_and_an_end CHECK ((probe_by IS NULL) = (probe_until IS NULL))
);

-- The routes of the configuration in use, so that views can tell which channel a waiting row is meant for.
CREATE TABLE outboxd.route (
    topic    text NOT NULL,
    position smallint NOT NULL,
    channel  text NOT NULL,
    PRIMARY KEY (topic, position)
);
