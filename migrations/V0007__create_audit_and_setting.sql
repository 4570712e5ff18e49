-- What operators did: who, when, what, to how many.

CREATE TABLE outboxd.audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL DEFAULT session_user,
    action   text NOT NULL,
    subject  text NOT NULL,
    affected bigint NOT NULL,
    detail   jsonb
);
CREATE INDEX audit_at ON outboxd.audit (at);

-- One row: this installation's identity and the limits that notify() enforces.
CREATE TABLE outboxd.setting (
    only_row          boolean PRIMARY KEY DEFAULT true,
    install_id        text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12),
    payload_bytes_max integer NOT NULL DEFAULT 262144,
    send_ahead_max    interval NOT NULL DEFAULT '5 years',
    -- Which functions and views are installed; see src/migrate.rs.
    sql_installed     text NOT NULL DEFAULT '',
    CONSTRAINT there_is_one_row_of_settings CHECK (only_row),
    CONSTRAINT payload_limit_is_between_1_kib_and_64_mib CHECK (payload_bytes_max BETWEEN 1024 AND 67108864)
);
INSERT INTO outboxd.setting DEFAULT VALUES;
