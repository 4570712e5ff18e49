-- Why a notification waits, in words: the reason that _wait has for it, what it waits behind, and what to do. The
-- command line, the API and the dashboard ask this function, so that they say what `stuck` says. Who paused something
-- is told only to a login that may read the audit; an error is told up to where it may quote a row, as readers ask too, and
-- they see the ends of an origin's host.
-- No row: it does not wait, it has ended, or there is no such notification.
--
-- Its place is told where rows go in a known order: those that are new and have no key, and those that are due while no
-- limit is reached. At a limit as many of each other topic of the line go before it, because topics take turns, and of
-- those of its own that were put back; how many others there are says the last snapshot.
-- Locks: none. Index: those of _wait; outbox_fresh and outbox_due for its place (up to 100,000 entries of its topic);
-- a_key_has_at_most_one_live_row and outbox_key; attempt_notification; audit_at.
CREATE OR REPLACE FUNCTION outboxd.why(id bigint)
RETURNS TABLE (reason text, explanation text, action text, since timestamptz, until timestamptz, behind bigint, place bigint,
               channel text, origin text, worker integer, paused_by text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    place_max CONSTANT integer := 100000;
    w         record;
    o         record;
    head      record;
    last      record;
    shown     text;
    target    text;
    roles     text[];
    lacking   text;
    before    text;
    text_of   text;
    todo      text;
BEGIN
    SELECT x.* INTO w FROM outboxd._wait x WHERE x.id = why.id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT x.topic, x.seq, x.state, x.ordering_key, x.retry_at, x.lease_until, x.cancel INTO o FROM outboxd.outbox x WHERE x.id = why.id;
    SELECT a.error, a.channel INTO last FROM outboxd.attempt a WHERE a.notification_id = why.id ORDER BY a.id DESC LIMIT 1;
    SELECT array_agg(DISTINCT r.name) INTO roles FROM outboxd.instance i CROSS JOIN LATERAL unnest(i.roles) r(name)
     WHERE i.stopped_at IS NULL AND i.heartbeat_at >= now() - i.ttl;
    roles := coalesce(roles, '{}');
    reason := w.reason; since := w.since; until := CASE WHEN w.until > now() THEN w.until END; channel := w.channel; worker := w.instance;
    shown := CASE WHEN has_function_privilege(session_user, 'outboxd.retry(bigint)', 'EXECUTE') THEN nullif(w.origin, '')
                  ELSE outboxd._masked_origin(nullif(w.origin, '')) END;
    origin := shown;
    target := coalesce(w.channel || coalesce(' at ' || shown, ''), 'its channel');
    IF o.state = 'ready' AND w.reason IN ('at its limit', 'waiting for the relay') THEN
        IF o.ordering_key IS NULL AND o.retry_at IS NULL THEN
            SELECT count(*) INTO place FROM (
                SELECT FROM outboxd.outbox v
                 WHERE v.topic = o.topic AND v.ordering_key IS NULL AND v.retry_at IS NULL AND v.seq < o.seq AND v.state = 'ready' LIMIT place_max) v;
        ELSIF w.reason = 'waiting for the relay' AND o.retry_at <= now() THEN
            SELECT count(*) INTO place FROM (
                SELECT FROM outboxd.outbox v WHERE v.topic = o.topic AND v.retry_at < o.retry_at AND v.state = 'ready' LIMIT place_max) v;
        END IF;
        before := CASE WHEN place >= place_max THEN format('at least %s of its topic stand before it', place_max)
                       WHEN place = 1 THEN '1 of its topic stands before it' ELSE place || ' of its topic stand before it' END;
    END IF;

    CASE w.reason
    WHEN 'not due yet' THEN
        text_of := format('It is to be sent at %s.', to_char(w.until, 'YYYY-MM-DD HH24:MI:SS TZ'));
    WHEN 'waiting for a producer', 'never released' THEN
        text_of := CASE WHEN 'producer' = ANY (roles) THEN 'It is due, and no producer has released it yet.'
                        ELSE 'It is due, and no instance with the role producer runs.' END;
        todo := CASE WHEN NOT 'producer' = ANY (roles) THEN 'Start an instance with the role producer: outboxd run'
                     WHEN w.is_late THEN 'It goes by itself once the producers have caught up; see outboxd.workers' END;
    WHEN 'topic paused' THEN
        text_of := format('An operator paused the topic %s.', w.topic);
        todo := format('Resume it: SELECT outboxd.resume(%L)', w.topic);
    WHEN 'channel paused' THEN
        text_of := format('An operator paused the channel %s.', w.channel);
        todo := format('Resume it: SELECT outboxd.resume_channel(%L)', w.channel);
    WHEN 'no route' THEN
        SELECT string_agg(c.id || ' on ' || c.host, ', ' ORDER BY c.id) INTO lacking
          FROM (SELECT x.id, x.host FROM outboxd._carrier x WHERE NOT x.topics && ARRAY[w.topic, 'default'] ORDER BY x.id LIMIT 5) c;
        text_of := format('No running instance has a route that leads %s anywhere%s.', w.topic, ': it is missing on ' || lacking);
        todo := format('Add [routes.%s] or [routes.default] to the configuration of every instance and restart it', w.topic);
    WHEN 'provider asked to wait' THEN
        text_of := format('The provider of %s asked to wait (Retry-After) until %s.', target, to_char(w.until, 'YYYY-MM-DD HH24:MI:SS TZ'));
        todo := 'It goes by itself';
    WHEN 'circuit open' THEN
        SELECT h.reason, h.held_until, h.is_asked INTO head FROM outboxd.channel_state h
         WHERE h.channel = w.channel AND h.origin IN ('', w.origin) AND h.reason <> 'retry_after' ORDER BY h.origin LIMIT 1;
        text_of := format('The circuit of %s is open: %s. %s', target,
            CASE head.reason WHEN 'unauthorized' THEN 'the provider refuses our credentials (401 or 403)' ELSE 'too many calls failed in a row' END,
            CASE WHEN head.held_until > now() THEN 'The provider ' || CASE WHEN head.is_asked THEN 'asked to wait and ' ELSE '' END || 'is probed at ' || to_char(head.held_until, 'YYYY-MM-DD HH24:MI:SS TZ') || '.'
                 ELSE 'The next notification probes the provider.' END);
        todo := format(CASE head.reason WHEN 'unauthorized' THEN 'Renew the credentials and restart every instance, which probes at once; with the old ones: SELECT outboxd.probe_channel(%s)'
                                        ELSE 'It goes by itself once a probe succeeds; SELECT outboxd.probe_channel(%s) probes now' END,
                       concat_ws(', ', quote_literal(w.channel), quote_literal(shown)));
    WHEN 'waiting for retry' THEN
        text_of := format('It is tried again at %s%s.', to_char(w.until, 'YYYY-MM-DD HH24:MI:SS TZ'),
                          '; the last attempt' || coalesce(' on ' || last.channel, '') || ' failed: ' || rtrim(outboxd._cause(last.error), '.'));
        todo := 'It goes by itself';
    WHEN 'waiting behind key' THEN
        behind := coalesce(
            (SELECT v.id FROM outboxd.outbox v WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key AND v.has_turn),
            (SELECT v.id FROM outboxd.outbox v WHERE v.topic = o.topic AND v.ordering_key = o.ordering_key ORDER BY v.seq LIMIT 1));
        SELECT x.reason INTO head FROM outboxd._wait x WHERE x.id = behind;
        text_of := format('It waits behind notification %s of its ordering key%s.', behind, ', which is ' || CASE head.reason
            WHEN 'topic paused' THEN 'held: topic paused' WHEN 'no route' THEN 'held: no route' WHEN 'channel paused' THEN 'held: channel paused'
            WHEN 'circuit open' THEN 'held: circuit open' WHEN 'provider asked to wait' THEN 'held: provider asked to wait'
            WHEN 'lease expired' THEN 'being sent by nobody any more: lease expired'
            ELSE head.reason END);
        todo := format('It goes once that one has ended: SELECT * FROM outboxd.why(%s)', behind);
    WHEN 'at its limit' THEN
        text_of := format('%s%s%s.',
            CASE w.limited_by WHEN 'rate_limit' THEN format('%s is at its rate_limit', target)
                 WHEN 'max_in_flight' THEN format('%s has as many calls under way as its max_in_flight allows', target)
                 WHEN 'max_in_flight_per_origin' THEN format('%s has as many calls under way as max_in_flight_per_origin allows', target)
                 WHEN 'share of topic' THEN format('%s has its share of the calls that the instances may have under way', w.topic)
                 WHEN 'concurrency' THEN 'The instances have as many calls under way as worker.concurrency allows'
                 ELSE format('It waits for its turn at %s', target) END,
            CASE WHEN w.per_second > 0 THEN format(' (%s calls a second)', round(w.per_second::numeric, CASE WHEN w.per_second < 10 THEN 1 ELSE 0 END)) END,
            coalesce('; ' || before, CASE WHEN o.retry_at > now() THEN '; it comes up again at ' || to_char(o.retry_at, 'YYYY-MM-DD HH24:MI:SS TZ') END));
        SELECT now() + n.before / w.per_second * interval '1 s' INTO until
          FROM (SELECT place + coalesce(sum(least(t.count, place + 1)), 0) AS before
                  FROM (SELECT sum(x.count) AS count FROM outboxd.snapshot_waiting x
                         WHERE x.reason = 'at its limit' AND x.channel = w.channel AND x.topic <> w.topic AND w.limited_by <> 'share of topic'
                         GROUP BY x.topic
                        UNION ALL
                        SELECT count(*) FROM (SELECT FROM outboxd.outbox v WHERE v.topic = o.topic AND v.retry_at IS NOT NULL
                                                 AND v.waits_for IS NOT NULL AND v.state = 'ready' LIMIT place + 1) v) t) n
         WHERE place < place_max AND n.before < w.per_second * 2592000
           AND (SELECT c.taken_at > now() - interval '1 min' FROM outboxd.snapshot c);
        todo := CASE WHEN w.limited_by IN ('concurrency', 'share of topic')
                     THEN 'It goes by itself; more instances or a higher worker.concurrency make it faster'
                     WHEN w.limited_by = 'rate_limit' THEN 'It goes by itself; raise rate_limit if the provider allows more'
                     ELSE 'It goes by itself' END;
    WHEN 'waiting for the relay', 'never published' THEN
        text_of := CASE WHEN NOT 'relay' = ANY (roles) THEN 'It is ready, and no instance with the role relay runs.'
                        WHEN w.reason = 'never published' THEN format('It has been ready since %s, and no instance has published it.',
                                                                      to_char(w.since, 'YYYY-MM-DD HH24:MI:SS TZ'))
                        WHEN o.retry_at > now() THEN format('It was put back and is published at %s.', to_char(o.retry_at, 'YYYY-MM-DD HH24:MI:SS TZ'))
                        WHEN o.state = 'blocked' THEN 'It is the first of its ordering key and gets its turn next.'
                        WHEN place > 0 THEN format('It is ready; %s.', before)
                        ELSE 'It is ready and is published next.' END;
        todo := CASE WHEN NOT 'relay' = ANY (roles) THEN 'Start an instance with the role relay: outboxd run'
                     WHEN w.reason = 'never published' THEN 'Look at outboxd.health and the logs of the instances with the role relay' END;
    WHEN 'in the queue', 'published without progress' THEN
        text_of := format('It is in the queue since %s%s.', to_char(w.since, 'YYYY-MM-DD HH24:MI:SS TZ'),
                          CASE WHEN 'worker' = ANY (roles) THEN CASE WHEN w.is_late THEN ', and no worker has taken it' ELSE '; a worker takes it next' END
                               ELSE ', and no instance with the role worker runs' END);
        todo := CASE WHEN NOT 'worker' = ANY (roles) THEN 'Start an instance with the role worker: outboxd run'
                     WHEN w.is_late THEN 'It is published again by itself if the queue lost it; look at outboxd.workers and the queue in outboxd.health' END;
    WHEN 'being sent' THEN
        text_of := format('Instance %s calls %s; it took it from the queue after %s.', concat(w.instance, (SELECT ' on ' || i.host FROM outboxd.instance i WHERE i.id = w.instance)),
                          target, to_char(w.since, 'YYYY-MM-DD HH24:MI:SS TZ'));
    WHEN 'lease expired' THEN
        text_of := format('Instance %s was sending it and has not been heard of since.', concat(w.instance, (SELECT ' on ' || i.host FROM outboxd.instance i WHERE i.id = w.instance)));
        todo := CASE WHEN 'relay' = ANY (roles) THEN 'It is published again by itself' ELSE 'Start an instance with the role relay: outboxd run' END;
    WHEN 'came with a copy' THEN
        text_of := CASE (SELECT g.phase FROM outboxd.origin g)
            WHEN 'returning' THEN 'The database was copied or moved, and was adopted as the same installation: it goes on in its turn.'
            WHEN 'canceling' THEN 'The database is a copy that was adopted as a new installation: it is canceled in its turn.'
            ELSE 'The database was copied or moved, and it came with it: its original may send it.' END;
        IF (SELECT g.phase FROM outboxd.origin g) IN ('setting aside', 'waiting') THEN
            todo := 'The same installation, moved or upgraded: outboxd adopt --same; a clone: outboxd adopt --new cancels it';
        END IF;
    ELSE
        text_of := w.reason;
    END CASE;
    explanation := CASE WHEN o.cancel THEN 'It was canceled: no further attempt. ' ELSE '' END || text_of;
    action := todo;
    IF w.reason IN ('topic paused', 'channel paused') AND has_table_privilege(session_user, 'outboxd.audit', 'SELECT') THEN
        SELECT coalesce(a.token, a.actor) INTO paused_by
          FROM (SELECT 'pause' AS action, t.name AS subject, t.paused_at FROM outboxd.topic t WHERE w.reason = 'topic paused' AND t.name = w.topic
                UNION ALL
                SELECT 'pause_channel', h.channel, h.paused_at FROM outboxd.channel_state h
                 WHERE w.reason = 'channel paused' AND h.channel = w.channel AND h.origin = '') p
          JOIN outboxd.audit a ON a.at BETWEEN p.paused_at - interval '1 s' AND p.paused_at + interval '1 min'
                              AND a.action = p.action AND a.subject = p.subject
         ORDER BY a.at LIMIT 1;
    END IF;
    RETURN NEXT;
END $$;

COMMENT ON FUNCTION outboxd.why IS
    'Why a notification waits: the reason as in outboxd.stuck and outboxd.waiting, an explanation, what to do, since when and until about when, '
    'the notification that it waits behind, how many of its topic stand before it where that is known. No row: it does not wait.';
