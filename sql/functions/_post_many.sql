-- notify_many() for items of any topics, topic by topic; ids in the order given. An error numbers the items of its
-- topic. Locks and indexes: those of notify_many().
CREATE OR REPLACE FUNCTION outboxd._post_many(items jsonb) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids   bigint[] := array_fill(NULL::bigint, ARRAY[jsonb_array_length(items)]);
    part  record;
    drawn bigint[];
BEGIN
    FOR part IN SELECT i.value->>'topic' AS topic, jsonb_agg(i.value - 'topic' ORDER BY i.n) AS items, array_agg(i.n::integer ORDER BY i.n) AS places
                  FROM jsonb_array_elements(items) WITH ORDINALITY i(value, n) GROUP BY 1 ORDER BY min(i.n)
    LOOP
        drawn := ARRAY(SELECT n.id FROM outboxd.notify_many(part.topic, part.items) WITH ORDINALITY n(id, place) ORDER BY n.place);
        FOR n IN 1..cardinality(drawn) LOOP
            ids[part.places[n]] := drawn[n];
        END LOOP;
    END LOOP;
    RETURN ids;
END $$;
