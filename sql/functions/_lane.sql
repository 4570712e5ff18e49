-- The lane of a topic, 0 if it has none yet, looked up once a session: notify() finds it in `outboxd.lanes` from then on.
-- Lanes never change. The setting is a list of \x01 topic \x02 lane \x01, begun anew when it gets long. Topics with these
-- characters in them are not remembered; one made up to look like two entries would share another topic's turns.
CREATE OR REPLACE FUNCTION outboxd._lane(topic text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found integer := (SELECT t.lane FROM outboxd.topic t WHERE t.name = _lane.topic);
    known text    := coalesce(current_setting('outboxd.lanes', true), '');
BEGIN
    IF found > 0 AND topic !~ '[\x01\x02]' AND strpos(known, format(E'\x01%s\x02', topic)) = 0 THEN
        PERFORM set_config('outboxd.lanes', CASE WHEN length(known) < 2000 THEN known ELSE '' END || format(E'\x01%s\x02%s\x01', topic, found), false);
    END IF;
    RETURN coalesce(found, 0);
END $$;
