-- What matches a filter: counts it or, unless that is all that was asked for, changes it. What is written, or fails, later
-- than this begins is left out; `id_max` and `until` say where that is: given back with the filter, exactly what was
-- counted is changed.
-- $1 token, under whose name it is audited · $2 filter, a JSON object as text · $3 whether only to count
-- Locks and indexes: those of the function; notification_log_pkey.
SELECT w.matched, w.done, w.bulk_id, (t.filter->>'id_max')::bigint AS id_max, t.filter->>'until' AS until
  FROM (SELECT jsonb_build_object('id_max', (SELECT coalesce(max(l.id), 0) FROM outboxd.notification_log l),
                                  'until', clock_timestamp()) || $2::text::jsonb AS filter,
               set_config('outboxd.token', $1::text, true) OFFSET 0) t
 CROSS JOIN LATERAL outboxd.discard_where(t.filter, $3::boolean) w
