TYPE status PENDING QUEUED SENT FAILED CANCELED
TABLE attempt
    id bigint NOT NULL IDENTITY ALWAYS
    notification_id bigint NOT NULL
    token integer NOT NULL
    number integer
    started_at timestamp with time zone
    ended_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    duration_ms integer
    instance integer
    http_status smallint
    outcome text NOT NULL
    channel text
    error text
    response text
    CONSTRAINT attempt_pkey PRIMARY KEY (id)
    CONSTRAINT outcome_is_known_to_us CHECK ((outcome = ANY (ARRAY['failed'::text, 'unknown'::text, 'late failure'::text, 'duplicate'::text, 'late success'::text])))
    CREATE INDEX attempt_notification ON outboxd.attempt USING btree (notification_id)
    CREATE UNIQUE INDEX attempt_pkey ON outboxd.attempt USING btree (id)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE attempt_id_seq
    GRANT select, update, usage TO outboxd_service
VIEW attempts
    notification_id bigint
    number integer
    channel text
    started_at timestamp with time zone
    ended_at timestamp with time zone
    duration_ms integer
    outcome text
    http_status smallint
    error text
    response text
    worker integer
    token integer
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
TABLE audit
    id bigint NOT NULL IDENTITY ALWAYS
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    actor text NOT NULL DEFAULT SESSION_USER
    action text NOT NULL
    subject text NOT NULL
    affected bigint NOT NULL
    detail jsonb
    CONSTRAINT audit_pkey PRIMARY KEY (id)
    CREATE INDEX audit_at ON outboxd.audit USING btree (at)
    CREATE UNIQUE INDEX audit_pkey ON outboxd.audit USING btree (id)
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE audit_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE channel_hold
    channel text NOT NULL
    origin text NOT NULL DEFAULT ''::text
    paused_at timestamp with time zone
    held_until timestamp with time zone
    reason text
    openings integer NOT NULL DEFAULT 0
    probe_by integer
    probe_until timestamp with time zone
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT channel_hold_pkey PRIMARY KEY (channel, origin)
    CONSTRAINT holds_and_only_they_have_a_reason CHECK (((held_until IS NULL) = (reason IS NULL)))
    CONSTRAINT only_whole_channels_are_paused CHECK (((paused_at IS NULL) OR (origin = ''::text)))
    CONSTRAINT probes_have_an_owner_and_an_end CHECK (((probe_by IS NULL) = (probe_until IS NULL)))
    CREATE UNIQUE INDEX channel_hold_pkey ON outboxd.channel_hold USING btree (channel, origin)
    GRANT delete, insert, select, update TO outboxd_service
VIEW dead_letters
    id bigint
    topic text
    recipient text
    channel text
    attempts integer
    error text
    http_status smallint
    failed_at timestamp with time zone
    created_at timestamp with time zone
    payload jsonb
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE doorbell
    GRANT select, update, usage TO outboxd_service
TABLE duty WITH (fillfactor=50)
    name text NOT NULL
    owner integer
    until timestamp with time zone
    since timestamp with time zone
    CONSTRAINT duty_pkey PRIMARY KEY (name)
    CONSTRAINT owned_duties_and_only_they_have_a_lease CHECK ((((owner IS NULL) = (until IS NULL)) AND ((owner IS NULL) = (since IS NULL))))
    CREATE UNIQUE INDEX duty_pkey ON outboxd.duty USING btree (name)
    GRANT delete, insert, select, update TO outboxd_service
TABLE event
    id bigint NOT NULL IDENTITY ALWAYS
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    topic text NOT NULL
    key text NOT NULL
    payload jsonb NOT NULL
    headers jsonb
    CONSTRAINT event_pkey PRIMARY KEY (id)
    CONSTRAINT headers_are_an_object CHECK ((jsonb_typeof(headers) = 'object'::text))
    CONSTRAINT key_has_1_to_512_bytes CHECK (((octet_length(key) >= 1) AND (octet_length(key) <= 512)))
    CONSTRAINT topic_has_1_to_200_bytes CHECK (((octet_length(topic) >= 1) AND (octet_length(topic) <= 200)))
    CREATE UNIQUE INDEX event_pkey ON outboxd.event USING btree (id)
    CREATE INDEX event_topic ON outboxd.event USING btree (topic, id)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE event_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE event_outbox WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
    seq bigint NOT NULL IDENTITY ALWAYS
    event_id bigint NOT NULL
    CONSTRAINT event_outbox_pkey PRIMARY KEY (seq)
    CREATE UNIQUE INDEX event_outbox_pkey ON outboxd.event_outbox USING btree (seq)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE event_outbox_seq_seq
    GRANT select, update, usage TO outboxd_service
TABLE inbox
    consumer text NOT NULL
    message_id text NOT NULL
    received_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    responded_at timestamp with time zone
    response jsonb
    CONSTRAINT consumer_has_1_to_200_bytes CHECK (((octet_length(consumer) >= 1) AND (octet_length(consumer) <= 200)))
    CONSTRAINT inbox_pkey PRIMARY KEY (consumer, message_id)
    CONSTRAINT message_id_has_1_to_512_bytes CHECK (((octet_length(message_id) >= 1) AND (octet_length(message_id) <= 512)))
    CONSTRAINT responses_and_only_they_have_responded_at CHECK (((response IS NULL) = (responded_at IS NULL)))
    CREATE UNIQUE INDEX inbox_pkey ON outboxd.inbox USING btree (consumer, message_id)
    CREATE INDEX inbox_received ON outboxd.inbox USING btree (received_at)
    GRANT delete, insert, select, update TO outboxd_service
TABLE instance WITH (fillfactor=50)
    id integer NOT NULL IDENTITY ALWAYS
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    heartbeat_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    ttl interval NOT NULL
    stopped_at timestamp with time zone
    queue_counter bigint NOT NULL DEFAULT 0
    claimed_through timestamp with time zone
    in_flight integer NOT NULL DEFAULT 0
    draining boolean NOT NULL DEFAULT false
    clock_skew_ms integer
    pid integer NOT NULL
    roles text[] NOT NULL
    queue_kind text NOT NULL
    host text NOT NULL
    version text NOT NULL
    CONSTRAINT instance_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX instance_pkey ON outboxd.instance USING btree (id)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE instance_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE notification_log WITH (fillfactor=85)
    id bigint NOT NULL IDENTITY ALWAYS
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    send_at timestamp with time zone NOT NULL DEFAULT now()
    expires_at timestamp with time zone
    finished_at timestamp with time zone
    due_at timestamp with time zone GENERATED 
CASE
    WHEN (status = 'PENDING'::outboxd.status) THEN send_at
    ELSE NULL::timestamp with time zone
END
    failed_at timestamp with time zone GENERATED 
CASE
    WHEN (status = 'FAILED'::outboxd.status) THEN finished_at
    ELSE NULL::timestamp with time zone
END
    status outboxd.status NOT NULL DEFAULT 'PENDING'::outboxd.status
    epoch integer NOT NULL DEFAULT 0
    attempts integer NOT NULL DEFAULT 0
    http_status smallint
    topic text NOT NULL
    recipient text NOT NULL
    payload jsonb NOT NULL
    headers jsonb
    dedup_key text
    ordering_key text
    channel text
    error text
    CONSTRAINT notification_is_legal CHECK (outboxd._check_notification(topic, recipient, dedup_key, ordering_key, headers, send_at, expires_at, status, finished_at, error))
    CONSTRAINT notification_log_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX notification_log_dedup ON outboxd.notification_log USING btree (topic, dedup_key) WHERE (dedup_key IS NOT NULL)
    CREATE INDEX notification_log_due ON outboxd.notification_log USING btree (due_at) INCLUDE (topic) WHERE (due_at IS NOT NULL)
    CREATE INDEX notification_log_failed ON outboxd.notification_log USING btree (failed_at) INCLUDE (topic) WHERE (failed_at IS NOT NULL)
    CREATE UNIQUE INDEX notification_log_pkey ON outboxd.notification_log USING btree (id)
    CREATE TRIGGER ring AFTER INSERT ON outboxd.notification_log FOR EACH STATEMENT EXECUTE FUNCTION outboxd._ring_after_insert()
    GRANT delete, insert, select, update TO outboxd_service
    GRANT select (id) TO outboxd_app
    GRANT insert (send_at) TO outboxd_app
    GRANT insert (expires_at) TO outboxd_app
    GRANT insert (topic) TO outboxd_app
    GRANT insert (recipient) TO outboxd_app
    GRANT insert (payload) TO outboxd_app
    GRANT insert (headers) TO outboxd_app
    GRANT insert (dedup_key) TO outboxd_app
    GRANT insert (ordering_key) TO outboxd_app
SEQUENCE notification_log_id_seq
    GRANT select, update, usage TO outboxd_service
VIEW notifications
    id bigint
    topic text
    recipient text
    status text
    channel text
    attempts integer
    next_attempt_at timestamp with time zone
    worker integer
    error text
    http_status smallint
    payload jsonb
    headers jsonb
    dedup_key text
    ordering_key text
    created_at timestamp with time zone
    send_at timestamp with time zone
    expires_at timestamp with time zone
    finished_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
TABLE outbox WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=5000)
    id bigint NOT NULL
    seq bigint NOT NULL IDENTITY ALWAYS
    next_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    retry_at timestamp with time zone
    batch bigint
    lane integer NOT NULL DEFAULT 0
    epoch integer NOT NULL DEFAULT 0
    instance integer
    attempts integer NOT NULL DEFAULT 0
    channel_attempts smallint NOT NULL DEFAULT 0
    channel smallint NOT NULL DEFAULT 0
    state smallint NOT NULL DEFAULT 0
    cancel boolean NOT NULL DEFAULT false
    ordering_key text
    live_key text
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
    CONSTRAINT work_is_legal CHECK (outboxd._check_work(state, instance, batch, retry_at, ordering_key, live_key))
    CREATE UNIQUE INDEX a_key_has_at_most_one_live_row ON outboxd.outbox USING btree (live_key) WHERE (live_key IS NOT NULL)
    CREATE INDEX outbox_key ON outboxd.outbox USING btree (ordering_key, seq) WHERE (ordering_key IS NOT NULL)
    CREATE INDEX outbox_lane ON outboxd.outbox USING btree (lane, seq)
    CREATE UNIQUE INDEX outbox_pkey ON outboxd.outbox USING btree (id)
    CREATE INDEX outbox_retry ON outboxd.outbox USING btree (retry_at) WHERE (retry_at IS NOT NULL)
    GRANT delete, insert, select, update TO outboxd_service
VIEW outbox_lag
    ready_unpublished bigint
    oldest_age interval
    published_last_minute bigint
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE outbox_seq_seq
    GRANT select, update, usage TO outboxd_service
TABLE publication WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
    id bigint NOT NULL
    instance integer NOT NULL
    reserved_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT publication_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX publication_pkey ON outboxd.publication USING btree (id)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE publication_id
    GRANT select, update, usage TO outboxd_service
VIEW queue_state
    topic text
    status text
    count bigint
    oldest_age interval
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
TABLE retention_walk WITH (fillfactor=50)
    name text NOT NULL
    position bigint NOT NULL DEFAULT 0
    is_caught_up boolean NOT NULL DEFAULT false
    restarted_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT retention_walk_pkey PRIMARY KEY (name)
    CREATE UNIQUE INDEX retention_walk_pkey ON outboxd.retention_walk USING btree (name)
    GRANT delete, insert, select, update TO outboxd_service
TABLE setting
    only_row boolean NOT NULL DEFAULT true
    install_id text NOT NULL DEFAULT "left"(replace((gen_random_uuid())::text, '-'::text, ''::text), 12)
    payload_bytes_max integer NOT NULL DEFAULT 262144
    send_ahead_max interval NOT NULL DEFAULT '5 years'::interval
    sql_installed text NOT NULL DEFAULT ''::text
    CONSTRAINT payload_limit_is_between_1_kib_and_64_mib CHECK (((payload_bytes_max >= 1024) AND (payload_bytes_max <= 67108864)))
    CONSTRAINT setting_pkey PRIMARY KEY (only_row)
    CONSTRAINT there_is_one_row_of_settings CHECK (only_row)
    CREATE UNIQUE INDEX setting_pkey ON outboxd.setting USING btree (only_row)
    GRANT delete, insert, select, update TO outboxd_service
TABLE topic
    lane integer NOT NULL IDENTITY ALWAYS
    name text NOT NULL
    paused_at timestamp with time zone
    rewinds integer NOT NULL DEFAULT 0
    CONSTRAINT lane_0_means_unassigned CHECK ((lane > 0))
    CONSTRAINT topic_name_key UNIQUE (name)
    CONSTRAINT topic_pkey PRIMARY KEY (lane)
    CREATE UNIQUE INDEX topic_name_key ON outboxd.topic USING btree (name)
    CREATE UNIQUE INDEX topic_pkey ON outboxd.topic USING btree (lane)
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE topic_lane_seq
    GRANT select, update, usage TO outboxd_service
VIEW workers
    worker integer
    host text
    pid integer
    version text
    roles text[]
    queue text
    state text
    in_flight integer
    heartbeat_at timestamp with time zone
    heartbeat_age interval
    started_at timestamp with time zone
    stopped_at timestamp with time zone
    clock_skew_ms integer
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
FUNCTION _admit(keys text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _check_notification(topic text, recipient text, dedup_key text, ordering_key text, headers jsonb, send_at timestamp with time zone, expires_at timestamp with time zone, status outboxd.status, finished_at timestamp with time zone, error text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE GRANT TO outboxd_app, outboxd_service
FUNCTION _check_work(state smallint, instance integer, batch bigint, retry_at timestamp with time zone, ordering_key text, live_key text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE GRANT TO outboxd_service
FUNCTION _items(items jsonb) RETURNS TABLE(n bigint, recipient text, payload jsonb, send_at timestamp with time zone, dedup_key text, ordering_key text, expires_at timestamp with time zone, headers jsonb) LANGUAGE sql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject(what text, topic text, recipient text, payload jsonb, send_at timestamp with time zone, dedup_key text, ordering_key text, expires_at timestamp with time zone, headers jsonb) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_headers(what text, headers jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_items(topic text, items jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _requeue(ids bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _ring() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _ring_after_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION cancel(id bigint) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION notify(topic text, recipient text, payload jsonb, send_at timestamp with time zone DEFAULT now(), dedup_key text DEFAULT NULL::text, ordering_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION notify_many(topic text, items jsonb) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION pause(topic text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION pause_channel(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION publish(topic text, key text, payload jsonb, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION receive(consumer text, message_id text) RETURNS TABLE(first boolean, response jsonb) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION resend(id bigint) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION respond(consumer text, message_id text, response jsonb) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION resume(topic text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION resume_channel(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION retry(id bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION retry_dead(topic text, since timestamp with time zone DEFAULT NULL::timestamp with time zone, max integer DEFAULT NULL::integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
GRANT usage ON SCHEMA outboxd TO outboxd_app
GRANT usage ON SCHEMA outboxd TO outboxd_operator
GRANT usage ON SCHEMA outboxd TO outboxd_service
