-- Campaigns that repeat: at each slot of `cron` in `timezone` everybody in `audience` gets a notification.
--
-- `next_slot` is worked out by an instance: NULL, it has not looked yet; with an `error`, it cannot. `version` goes up
-- with each change, so that what was worked out for the schedule as it was is not used for what it is now.

CREATE TABLE outboxd.schedule (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    cron       text NOT NULL,
    timezone   text NOT NULL,
    topic      text NOT NULL,
    audience   text NOT NULL,
    lead       interval NOT NULL,
    spread     interval NOT NULL,
    catch_up   interval NOT NULL,
    version    integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Slots after this moment count.
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_slot  timestamptz,
    error      text,

    CONSTRAINT name_has_1_to_200_bytes CHECK (octet_length(name) BETWEEN 1 AND 200),
    CONSTRAINT topic_has_1_to_200_bytes CHECK (octet_length(topic) BETWEEN 1 AND 200),
    CONSTRAINT lead_is_up_to_a_day CHECK (lead BETWEEN '0' AND '1 day'),
    CONSTRAINT spread_is_up_to_a_day CHECK (spread BETWEEN '0' AND '1 day'),
    CONSTRAINT catch_up_is_up_to_a_week CHECK (catch_up BETWEEN '0' AND '7 days'),
    CONSTRAINT schedules_with_an_error_have_no_slot CHECK (error IS NULL OR next_slot IS NULL)
);

-- The limits of reading an audience.
ALTER TABLE outboxd.setting
    ADD COLUMN audience_rows_max bigint NOT NULL DEFAULT 5000000,
    ADD COLUMN audience_time_max interval NOT NULL DEFAULT '2 minutes',
    ADD CONSTRAINT audience_has_1_row_or_more CHECK (audience_rows_max > 0),
    ADD CONSTRAINT audience_time_is_between_100_ms_and_1_hour CHECK (audience_time_max BETWEEN '100 ms' AND '1 hour');
