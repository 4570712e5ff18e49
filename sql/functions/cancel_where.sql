-- The waiting notifications that match a filter are taken back. A dry run, unless told otherwise, says how many.
CREATE OR REPLACE FUNCTION outboxd.cancel_where(filter jsonb, dry_run boolean DEFAULT true)
    RETURNS TABLE (matched bigint, done bigint, bulk_id bigint, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM outboxd._reject_filter('cancel_where', cancel_where.filter, ARRAY['topic', 'since', 'until', 'recipient', 'id_max']);
    RETURN QUERY SELECT * FROM outboxd._bulk_where('cancel', cancel_where.filter, cancel_where.dry_run);
END $$;

COMMENT ON FUNCTION outboxd.cancel_where IS
    'Cancel the PENDING and QUEUED notifications that match: {"topic", "since", "until" (of send_at), "recipient", '
    '"id_max"}. A dry run, which only counts, unless dry_run => false. More than 1,000 are worked off in the background: see '
    'outboxd.bulk_actions.';
