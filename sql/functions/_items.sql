-- The items of notify_many() as rows, numbered from 1. A field that is null or missing is NULL.
CREATE OR REPLACE FUNCTION outboxd._items(items jsonb) RETURNS TABLE (
    n bigint, recipient text, payload jsonb, send_at timestamptz, dedup_key text, ordering_key text,
    expires_at timestamptz, headers jsonb)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.n, r.recipient, r.payload, r.send_at, r.dedup_key, r.ordering_key, r.expires_at, r.headers
      FROM jsonb_array_elements(items) WITH ORDINALITY i(value, n)
      CROSS JOIN LATERAL jsonb_to_record(i.value) r(
           recipient text, payload jsonb, send_at timestamptz, dedup_key text, ordering_key text,
           expires_at timestamptz, headers jsonb)
$$;
