-- How far retention has come in each table. A walk goes up the table once; what it passed and had to leave (kept
-- longer, not yet ended) is found when it starts again, about once a day, so that history is not read again and
-- again. `position` is the last id looked at (inbox: received_at in microseconds since 1970).

CREATE TABLE outboxd.retention_walk (
    name         text PRIMARY KEY,
    position     bigint NOT NULL DEFAULT 0,
    is_caught_up boolean NOT NULL DEFAULT false,
    restarted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

INSERT INTO outboxd.retention_walk (name)
VALUES ('notification_log'), ('attempt'), ('event'), ('inbox'), ('audit');
