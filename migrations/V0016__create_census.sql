-- How many rows wait, work and are dead, as last counted by an instance. Views count for themselves while there is
-- little to count; beyond that they show the census, so that looking at a backlog of any size costs nothing.
CREATE TABLE outboxd.census (
    only_row         boolean PRIMARY KEY DEFAULT true,
    taken_at         timestamptz NOT NULL DEFAULT '-infinity',
    -- How long the count took: the next one is that much rarer.
    cost             interval NOT NULL DEFAULT '0',
    rows             bigint NOT NULL DEFAULT 0,
    ready            bigint NOT NULL DEFAULT 0,
    ready_since      timestamptz,
    CONSTRAINT there_is_one_census CHECK (only_row)
) WITH (fillfactor = 50);
INSERT INTO outboxd.census DEFAULT VALUES;

CREATE TABLE outboxd.census_count (
    topic        text NOT NULL,
    status       text NOT NULL,
    count        bigint NOT NULL,
    oldest_since timestamptz,
    PRIMARY KEY (topic, status)
);
