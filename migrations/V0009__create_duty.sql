-- Duties that one instance does at a time for all: a lease, by the database's clock. A row lock or an advisory
-- lock of a session would not work through a transaction-mode pooler.
--
-- Every statement done under a duty checks the lease itself and locks this row FOR KEY SHARE meanwhile, so the duty
-- cannot change hands in the middle of it, and a former owner that wakes up late does nothing.

CREATE TABLE outboxd.duty (
    name  text PRIMARY KEY,
    owner integer,
    until timestamptz,
    since timestamptz,
    CONSTRAINT owned_duties_and_only_they_have_a_lease
        CHECK ((owner IS NULL) = (until IS NULL) AND (owner IS NULL) = (since IS NULL))
) WITH (fillfactor = 50);

INSERT INTO outboxd.duty (name) VALUES ('retention'), ('schedules'), ('rollups'), ('events');
