-- What matches a filter: counts it or, unless that is all that was asked for, changes it. What is written later than
-- this begins is left out, and `id_max` says where that is: given back with the filter, exactly what was counted is
-- changed.
-- $1 token, under whose name it is audited · $2 filter, a JSON object as text · $3 whether only to count
-- Locks, index: those of the function; notification_log_pkey.
SELECT w.matched, w.done, w.bulk_id, (t.filter->>'id_max')::bigint AS id_max, NULL::text AS until
  FROM (SELECT jsonb_build_object('id_max', (SELECT coalesce(max(l.id), 0) FROM outboxd.notification_log l)) || $2::text::jsonb AS filter,
               set_config('outboxd.token', $1::text, true) OFFSET 0) t
 CROSS JOIN LATERAL outboxd.cancel_where(t.filter, $3::boolean) w
