-- The dead letters that match a filter back to work, oldest first. A dry run, unless told otherwise, says how many.
CREATE OR REPLACE FUNCTION outboxd.retry_where(filter jsonb, dry_run boolean DEFAULT true)
    RETURNS TABLE (matched bigint, done bigint, bulk_id bigint, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outboxd._reject_filter('retry_where', retry_where.filter,
        ARRAY['topic', 'since', 'until', 'error_like', 'channel', 'http_status', 'cause', 'recipient', 'id_max']);
    RETURN QUERY SELECT * FROM outboxd._bulk_where('retry', retry_where.filter, retry_where.dry_run);
END $$;

COMMENT ON FUNCTION outboxd.retry_where IS
    'Retry the dead letters that match: {"topic", "since", "until" (of failed_at), "error_like" (a LIKE pattern), "cause" '
    '("HTTP 410", or the error up to its first colon; of a no inside a 200 also the whole error), "channel" (empty: none was called), '
    '"http_status", "recipient", "id_max"}. A dry run, which only counts, unless dry_run => false. More than 1,000 are worked off in the '
    'background: see outboxd.bulk_actions.';
