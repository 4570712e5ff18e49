-- The doorbell: one shared word outside MVCC, a time in milliseconds since 1970.
--
--   awake and polling     ahead of now      the app does not ring
--   asleep and listening  refreshed to now  the app rings (NOTIFY)
--   down                  stale             the app does not ring
--
-- A sequence leaves no dead row versions, takes no row lock and is seen by REPEATABLE READ too.

CREATE SEQUENCE outboxd.doorbell MINVALUE 0 START 0;
