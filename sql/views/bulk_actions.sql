-- Big actions and how far they are.
CREATE OR REPLACE VIEW outboxd.bulk_actions AS
SELECT b.id, b.action,
       CASE WHEN outboxd._sees_all() THEN b.filter
            ELSE b.filter - 'error_like' || CASE WHEN b.filter ? 'recipient'
                 THEN jsonb_build_object('recipient', outboxd._masked(b.filter->>'recipient')) ELSE '{}' END
                 || CASE WHEN b.filter ? 'cause' THEN jsonb_build_object('cause', outboxd._cause(b.filter->>'cause')) ELSE '{}' END
            END AS filter, b.actor,
       CASE WHEN b.stopped_by IS NOT NULL THEN 'stopped' WHEN b.ended_at IS NOT NULL THEN 'finished'
            WHEN b.error IS NOT NULL THEN 'failing' ELSE 'running' END AS state,
       b.matched, b.done, CASE WHEN b.ended_at IS NOT NULL AND b.stopped_by IS NULL THEN 100
                               ELSE least(round(100.0 * b.done / nullif(b.matched, 0)), 99) END::integer AS percent,
       b.started_at, b.ended_at, coalesce(b.ended_at, clock_timestamp()) - b.started_at AS duration, b.stopped_by,
       CASE WHEN outboxd._sees_all() THEN b.error ELSE outboxd._cause(b.error) END AS error,
       b.token
  FROM outboxd.bulk_action b
 WHERE outboxd._planned_for(outboxd._sees_all());

COMMENT ON VIEW outboxd.bulk_actions IS
    'Retries, discards and cancels of many notifications and how far they are. Worked off in batches by the running instances; '
    'outboxd.stop_bulk(id) ends one.';
COMMENT ON COLUMN outboxd.bulk_actions.id IS 'For outboxd.stop_bulk(id).';
COMMENT ON COLUMN outboxd.bulk_actions.action IS 'retry, discard or cancel.';
COMMENT ON COLUMN outboxd.bulk_actions.filter IS 'Which notifications; for readers without error_like, with the ends of a recipient, and a cause up to its first colon.';
COMMENT ON COLUMN outboxd.bulk_actions.actor IS 'The login that started it; over HTTP, the daemon''s.';
COMMENT ON COLUMN outboxd.bulk_actions.state IS 'running, failing (see error; it is tried again), finished or stopped.';
COMMENT ON COLUMN outboxd.bulk_actions.matched IS 'How many matched when it was started, a million at most.';
COMMENT ON COLUMN outboxd.bulk_actions.done IS
    'How many it has changed. Others may have moved on by themselves, so this can end below matched.';
COMMENT ON COLUMN outboxd.bulk_actions.percent IS 'How much of it is done.';
COMMENT ON COLUMN outboxd.bulk_actions.started_at IS 'When it was started; what happened since is not touched.';
COMMENT ON COLUMN outboxd.bulk_actions.ended_at IS 'When it was finished or stopped.';
COMMENT ON COLUMN outboxd.bulk_actions.duration IS 'How long it took, or has been running.';
COMMENT ON COLUMN outboxd.bulk_actions.stopped_by IS 'Who stopped it.';
COMMENT ON COLUMN outboxd.bulk_actions.error IS 'What went wrong at the last step, if it did; for readers without what may quote a row.';
COMMENT ON COLUMN outboxd.bulk_actions.token IS 'The token by which it was started over HTTP; NULL: in SQL.';
