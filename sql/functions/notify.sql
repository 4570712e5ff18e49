-- Enqueues one notification in the caller's transaction and returns its id.
--
-- This runs inside the app's transactions, so it is written for speed (ARCHITECTURE.md has the figures): the usual call
-- writes one row, the outbox row with its letter, in one statement, for a topic whose lane this session remembers and that
-- therefore needs no second look; the first time, the lane is looked up. Whatever else is asked goes to _notify().
--
-- It exists twice, because Postgres reads the defaults of missing arguments from their text, twice a call, and that costs more
-- than a row. The call with three arguments has no defaults; for the optional ones there is the other. `topic varchar` there
-- keeps the two apart: given three arguments, literals, parameters and texts mean the first, and nothing is ambiguous.
--
-- The row's number is its id and its turn. To draw it locks the sequence, and the bell is looked at inside the INSERT, whose lock on
-- the table comes first: these locks are what the scan's bound and falling asleep go by. A bell that reads NULL has been
-- taken down: see _ring().
--
-- Every function and operator costs about a microsecond, most of it looking up whether it may be called. Hence the form of
-- the tests.
--
-- A search_path set for the call would cost more than the statement. So every function and operator is written with its
-- schema: whoever calls may have any search_path and changes nothing.
CREATE OR REPLACE FUNCTION outboxd.notify(topic text, recipient text, payload jsonb) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    -- 0 or NULL: not remembered. See _lane().
    known_lane integer := pg_catalog.ascii(pg_catalog.split_part(pg_catalog.current_setting('outboxd.known_lanes', true),
        E'\x01' OPERATOR(pg_catalog.||) notify.topic OPERATOR(pg_catalog.||) E'\x02', 2));
    new_id     bigint;
BEGIN
    LOOP
        IF known_lane OPERATOR(pg_catalog.>) 0
           AND notify.recipient OPERATOR(pg_catalog.<>) ''
           AND pg_catalog.octet_length(notify.recipient OPERATOR(pg_catalog.||) notify.payload::pg_catalog.text) OPERATOR(pg_catalog.<=) 1024
        THEN
            new_id := pg_catalog.nextval('outboxd.notification_log_id_seq'::pg_catalog.regclass);
            INSERT INTO outboxd.outbox (id, seq, lane, topic, recipient, payload, send_at, next_at, created_at)
            VALUES (new_id, new_id, known_lane, notify.topic, notify.recipient, notify.payload, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP,
                    CASE WHEN pg_catalog.pg_sequence_last_value('outboxd.doorbell'::pg_catalog.regclass) IS NULL
                         THEN pg_catalog.clock_timestamp() ELSE outboxd._ring_at_insert() END);
            RETURN new_id;
        END IF;
        EXIT WHEN known_lane OPERATOR(pg_catalog.>) 0;
        known_lane := outboxd._lane(notify.topic);
        EXIT WHEN known_lane OPERATOR(pg_catalog.=) 0;
    END LOOP;
    RETURN outboxd._notify(notify.topic, notify.recipient, notify.payload, pg_catalog.now(), NULL, NULL, NULL, NULL);
END $$;

-- Until there was the one above, this one had `topic text`: with both, a call with three arguments would be ambiguous.
SET LOCAL client_min_messages = warning;
DROP FUNCTION IF EXISTS outboxd.notify(text, text, jsonb, timestamptz, text, text, timestamptz, jsonb);
RESET client_min_messages;

CREATE OR REPLACE FUNCTION outboxd.notify(
    topic varchar, recipient text, payload jsonb, send_at timestamptz DEFAULT now(), dedup_key text DEFAULT NULL,
    ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF send_at OPERATOR(pg_catalog.=) pg_catalog.now()
       AND pg_catalog.num_nonnulls(dedup_key, ordering_key, expires_at, headers) OPERATOR(pg_catalog.=) 0
    THEN
        RETURN outboxd.notify(topic::pg_catalog.text, recipient, payload);
    END IF;
    RETURN outboxd._notify(topic, recipient, payload, send_at, dedup_key, ordering_key, expires_at, headers);
END $$;

COMMENT ON FUNCTION outboxd.notify(text, text, jsonb) IS
    'Enqueue one notification in the current transaction; returns its id.';
COMMENT ON FUNCTION outboxd.notify(varchar, text, jsonb, timestamptz, text, text, timestamptz, jsonb) IS
    'Enqueue one notification in the current transaction; returns its id. The same (topic, dedup_key) again returns the first id and enqueues nothing.';
