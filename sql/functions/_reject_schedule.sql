-- Says what is wrong with a schedule and how to mend it; returns if nothing is. `what` names the caller. A topic that
-- has no route yet is only told of: the configuration may follow.
CREATE OR REPLACE FUNCTION outboxd._reject_schedule(what text, s outboxd.schedule) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad  text;
    hint text;
BEGIN
    SELECT v.name INTO bad FROM (VALUES (1, 'name', s.name IS NULL), (2, 'cron', s.cron IS NULL), (3, 'timezone', s.timezone IS NULL),
        (4, 'topic', s.topic IS NULL), (5, 'audience', s.audience IS NULL), (6, 'lead', s.lead IS NULL),
        (7, 'spread', s.spread IS NULL), (8, 'catch_up', s.catch_up IS NULL)) v(n, name, is_missing)
     WHERE v.is_missing ORDER BY v.n LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: % must not be NULL', what, bad USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT format('%s has %s bytes', v.name, octet_length(v.value)) INTO bad
      FROM (VALUES ('name', s.name), ('topic', s.topic)) v(name, value) WHERE octet_length(v.value) NOT BETWEEN 1 AND 200 LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: %', what, bad USING ERRCODE = 'invalid_parameter_value', HINT = 'A name and a topic have 1 to 200 bytes.';
    END IF;
    SELECT format('%s %s is out of range', v.name, v.value), format('%s may be 0 to %s.', v.name, v.longest) INTO bad, hint
      FROM (VALUES ('lead', s.lead, interval '1 day'), ('spread', s.spread, '1 day'), ('catch_up', s.catch_up, '7 days')) v(name, value, longest)
     WHERE v.value NOT BETWEEN '0' AND v.longest LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%: %', what, bad USING ERRCODE = 'invalid_parameter_value', HINT = hint;
    END IF;
    IF s.expires_after NOT BETWEEN '1 s' AND '30 days' THEN
        RAISE EXCEPTION '%: expires_after % is out of range', what, s.expires_after USING ERRCODE = 'invalid_parameter_value',
            HINT = 'expires_after may be 1 second to 30 days. Leave it out for notifications that do not expire.';
    END IF;
    PERFORM outboxd._reject_cron(what, s.cron);
    IF NOT EXISTS (SELECT FROM pg_timezone_names z WHERE z.name = s.timezone) THEN
        RAISE EXCEPTION '%: there is no time zone %', what, quote_literal(s.timezone) USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use a name such as Asia/Seoul or UTC; pg_timezone_names lists them.';
    END IF;
    PERFORM outboxd._reject_audience(what, s.audience);
    SELECT CASE WHEN (SELECT NOT r.published ?| ARRAY[s.topic, 'default'] OR NOT r.called ?| ARRAY[s.topic, 'default'] FROM outboxd._routed r)
                THEN 'anywhere'
                ELSE format('on %s of %s: %s', count(*) FILTER (WHERE c.lacks), outboxd._plural(count(c.topics), 'instance'),
                            array_to_string((array_agg(format('%s on %s', c.id, c.host) ORDER BY c.id) FILTER (WHERE c.lacks))[1:5], ', ')) END
      INTO bad
      FROM (SELECT w.id, w.host, w.topics, coalesce(NOT w.topics && ARRAY[s.topic, 'default'], false) AS lacks FROM outboxd._carrier w) c
    HAVING bool_or(c.lacks);
    IF FOUND THEN
        RAISE NOTICE 'no route leads % %; what this schedule sends waits for an instance that has one', quote_literal(s.topic), bad
            USING HINT = 'Add [routes.TOPIC] or [routes.default] to the configuration of every instance and restart.';
    END IF;
END $$;
