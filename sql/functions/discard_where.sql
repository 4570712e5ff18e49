-- The dead letters that match a filter, which nobody will retry: FAILED → CANCELED. A dry run, unless told otherwise,
-- says how many.
CREATE OR REPLACE FUNCTION outboxd.discard_where(filter jsonb, dry_run boolean DEFAULT true)
    RETURNS TABLE (matched bigint, done bigint, bulk_id bigint, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outboxd._reject_filter('discard_where', discard_where.filter,
        ARRAY['topic', 'since', 'until', 'error_like', 'channel', 'http_status', 'cause', 'recipient', 'id_max']);
    RETURN QUERY SELECT * FROM outboxd._bulk_where('discard', discard_where.filter, discard_where.dry_run);
END $$;

COMMENT ON FUNCTION outboxd.discard_where IS
    'Discard the dead letters that match, by the filter of outboxd.retry_where(): they leave outboxd.dead_letters and keep their '
    'errors. A dry run, which only counts, unless dry_run => false. More than 1,000 are worked off in the background: see '
    'outboxd.bulk_actions.';
