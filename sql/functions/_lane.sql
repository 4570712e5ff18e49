-- The lane of a topic, 0 if it has none yet, looked up once a session: notify() finds it in `outboxd.known_lanes` from then on.
-- Lanes never change. The setting is a list of \x01 topic \x02 lane, begun anew when it gets long; the lane is one character,
-- the one with its number, which is the fastest to read. Not remembered are topics with these characters in them and lanes
-- that are no character: from 128 on where the database's encoding is not UTF8. A topic made up to look like two entries
-- would share another one's turns.
CREATE OR REPLACE FUNCTION outboxd._lane(topic text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found integer := (SELECT t.lane FROM outboxd.topic t WHERE t.name = _lane.topic);
    known text    := coalesce(current_setting('outboxd.known_lanes', true), '');
    entry text    := E'\x01' || topic || E'\x02';
BEGIN
    IF (found BETWEEN 1 AND 127 OR found BETWEEN 128 AND 55295 AND getdatabaseencoding() = 'UTF8')
       AND translate(topic, E'\x01\x02', '') = topic AND strpos(known, entry) = 0
    THEN
        PERFORM set_config('outboxd.known_lanes', CASE WHEN length(known) < 2000 THEN known ELSE '' END || entry || chr(found), false);
    END IF;
    RETURN coalesce(found, 0);
END $$;
