TYPE notification_status PENDING QUEUED SENT FAILED CANCELED
TYPE state ready published processing blocked
VIEW _alive
    any boolean
    GRANT delete, insert, select, update TO outboxd_service
VIEW _carrier
    id integer
    host text
    roles text[]
    topics text[]
    GRANT delete, insert, select, update TO outboxd_service
VIEW _counts
    topic text
    status text
    count bigint
    oldest_since timestamp with time zone
    counted_at timestamp with time zone
    GRANT delete, insert, select, update TO outboxd_service
VIEW _due
    topic text
    due_at timestamp with time zone
    GRANT delete, insert, select, update TO outboxd_service
VIEW _live
    id bigint
    topic text
    seq bigint
    state outboxd.state
    attempts integer
    instance integer
    ordering_key text
    published_at timestamp with time zone
    lease_until timestamp with time zone
    retry_at timestamp with time zone
    waits_for text
    channel text
    is_routeless boolean
    limited_by text
    per_second double precision
    GRANT delete, insert, select, update TO outboxd_service
VIEW _route
    topic text
    position smallint
    channel text
    is_last boolean
    GRANT delete, insert, select, update TO outboxd_service
VIEW _routed
    published jsonb
    called jsonb
    has_default boolean
    limits jsonb
    shares jsonb
    GRANT delete, insert, select, update TO outboxd_service
VIEW _spans
    measure text
    subject text
    origin text
    count bigint
    p50_ms numeric
    p95_ms numeric
    p99_ms numeric
    GRANT delete, insert, select, update TO outboxd_service
VIEW _topic_counts
    topic text
    pending bigint
    queued bigint
    processing bigint
    dead bigint
    waiting_since timestamp with time zone
    sent bigint
    failed bigint
    retried bigint
    GRANT delete, insert, select, update TO outboxd_service
VIEW _topics
    topic text
    pending bigint
    queued bigint
    processing bigint
    dead bigint
    waiting_since timestamp with time zone
    sent bigint
    failed bigint
    retried bigint
    GRANT delete, insert, select, update TO outboxd_service
VIEW _vacuum_pins
    who text
    held_for interval
    query_start timestamp with time zone
    age_xids integer
    remedy text
    GRANT delete, insert, select, update TO outboxd_service
VIEW _wait
    id bigint
    topic text
    state text
    reason text
    channel text
    origin text
    attempts integer
    instance integer
    ordering_key text
    limited_by text
    per_second double precision
    until timestamp with time zone
    is_late boolean
    is_lag boolean
    since timestamp with time zone
    lag_since timestamp with time zone
    seq bigint
    GRANT delete, insert, select, update TO outboxd_service
VIEW _waits
    reason text
    topic text
    channel text
    held tid
    limited_by text
    per_second double precision
    is_lag boolean
    count bigint
    waits_since timestamp with time zone
    ready_since timestamp with time zone
    counted_at timestamp with time zone
    ends_at timestamp with time zone
    GRANT delete, insert, select, update TO outboxd_service
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
    provider_id text
    CONSTRAINT attempt_pkey PRIMARY KEY (id)
    CONSTRAINT outcome_is_known_to_us CHECK ((outcome = ANY (ARRAY['failed'::text, 'unknown'::text, 'late failure'::text, 'duplicate'::text, 'late success'::text])))
    CREATE INDEX attempt_notification ON outboxd.attempt USING btree (notification_id, id)
    CREATE UNIQUE INDEX attempt_pkey ON outboxd.attempt USING btree (id)
    POLICY grants_decide USING true CHECK true
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
    id bigint
    provider_id text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE audit
    id bigint NOT NULL IDENTITY ALWAYS
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    actor text NOT NULL DEFAULT SESSION_USER
    token text DEFAULT outboxd._token()
    action text NOT NULL
    subject text NOT NULL
    affected bigint NOT NULL
    detail jsonb
    CONSTRAINT audit_pkey PRIMARY KEY (id)
    CREATE INDEX audit_at ON outboxd.audit USING btree (at)
    CREATE UNIQUE INDEX audit_pkey ON outboxd.audit USING btree (id)
    POLICY grants_decide USING true CHECK true
    GRANT select TO outboxd_operator
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE audit_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE bulk_action
    id bigint NOT NULL IDENTITY ALWAYS
    action text NOT NULL
    filter jsonb NOT NULL
    actor text NOT NULL
    token text DEFAULT outboxd._token()
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    ended_at timestamp with time zone
    stopped_by text
    matched bigint NOT NULL
    done bigint NOT NULL DEFAULT 0
    rows_max bigint
    phase smallint NOT NULL DEFAULT 0
    cursor_part text NOT NULL DEFAULT ''::text
    cursor_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone
    cursor_id bigint NOT NULL DEFAULT 0
    batch bigint[] NOT NULL DEFAULT '{}'::bigint[]
    stepped_at timestamp with time zone
    next_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    error text
    CONSTRAINT bulk_action_pkey PRIMARY KEY (id)
    CONSTRAINT bulk_actions_retry_discard_or_cancel CHECK ((action = ANY (ARRAY['retry'::text, 'discard'::text, 'cancel'::text])))
    CONSTRAINT only_ended_bulk_actions_are_stopped CHECK (((stopped_by IS NULL) OR (ended_at IS NOT NULL)))
    CREATE INDEX bulk_action_open ON outboxd.bulk_action USING btree (id) WHERE (ended_at IS NULL)
    CREATE UNIQUE INDEX bulk_action_pkey ON outboxd.bulk_action USING btree (id)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE bulk_action_id_seq
    GRANT select, update, usage TO outboxd_service
VIEW bulk_actions
    id bigint
    action text
    filter jsonb
    actor text
    state text
    matched bigint
    done bigint
    percent integer
    started_at timestamp with time zone
    ended_at timestamp with time zone
    duration interval
    stopped_by text
    error text
    token text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
VIEW channel_health
    channel text
    origin text
    circuit text
    paused boolean
    held_until timestamp with time zone
    held_because text
    held_since timestamp with time zone
    next_probe_at timestamp with time zone
    waiting bigint
    calls bigint
    success_percent numeric
    p95_ms numeric
    last_error text
    last_error_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE channel_state
    channel text NOT NULL
    origin text NOT NULL DEFAULT ''::text
    paused_at timestamp with time zone
    held_until timestamp with time zone
    reason text
    is_asked boolean NOT NULL DEFAULT false
    since timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    credentials text
    openings integer NOT NULL DEFAULT 0
    refused integer NOT NULL DEFAULT 0
    refused_at timestamp with time zone
    probe_by integer
    probe_until timestamp with time zone
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT channel_state_pkey PRIMARY KEY (channel, origin)
    CONSTRAINT only_whole_channels_are_paused CHECK (((paused_at IS NULL) OR (origin = ''::text)))
    CONSTRAINT probes_have_an_owner_and_an_end CHECK (((probe_by IS NULL) = (probe_until IS NULL)))
    CONSTRAINT what_is_held_and_only_that_has_a_reason CHECK (((held_until IS NULL) = (reason IS NULL)))
    CREATE UNIQUE INDEX channel_state_pkey ON outboxd.channel_state USING btree (channel, origin)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE copied
    id bigint NOT NULL
    seq bigint
    due_at timestamp with time zone
    retry_at timestamp with time zone
    epoch integer NOT NULL
    attempts integer NOT NULL
    instance integer
    route_step smallint NOT NULL
    channel_attempts smallint NOT NULL
    state outboxd.state
    cancel boolean NOT NULL
    topic text NOT NULL
    ordering_key text
    CONSTRAINT copied_pkey PRIMARY KEY (id)
    CONSTRAINT pending_rows_have_a_time_and_no_position CHECK ((((state IS NULL) = (seq IS NULL)) AND ((seq IS NULL) = (due_at IS NOT NULL))))
    CREATE INDEX copied_order ON outboxd.copied USING btree (seq, due_at, id)
    CREATE UNIQUE INDEX copied_pkey ON outboxd.copied USING btree (id)
    POLICY grants_decide USING true CHECK true
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
    response text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE doorbell
    GRANT select TO outboxd_app
    GRANT select, update, usage TO outboxd_service
TABLE event
    id bigint NOT NULL IDENTITY ALWAYS
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    topic text NOT NULL
    key text NOT NULL
    payload jsonb NOT NULL
    headers jsonb
    CONSTRAINT event_pkey PRIMARY KEY (id)
    CONSTRAINT headers_are_an_object CHECK ((jsonb_typeof(headers) = 'object'::text))
    CONSTRAINT headers_have_at_most_16_kib CHECK ((octet_length((headers)::text) <= 16384))
    CONSTRAINT key_has_1_to_512_bytes CHECK (((octet_length(key) >= 1) AND (octet_length(key) <= 512)))
    CONSTRAINT topic_has_1_to_200_bytes CHECK (((octet_length(topic) >= 1) AND (octet_length(topic) <= 200)))
    CREATE UNIQUE INDEX event_pkey ON outboxd.event USING btree (id)
    CREATE INDEX event_topic ON outboxd.event USING btree (topic, id)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW event_consumers
    topic text
    consumer_group text
    behind bigint
    stream_max bigint
    cut_at timestamp with time zone
    cut_events bigint
    cut_from timestamp with time zone
    seen_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE event_group WITH (fillfactor=50)
    topic text NOT NULL
    name text NOT NULL
    delivered_id text NOT NULL
    needs bigint
    pending bigint
    gone bigint NOT NULL
    behind bigint NOT NULL
    stream_max bigint NOT NULL
    seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    cut_at timestamp with time zone
    cut_from timestamp with time zone
    cut_events bigint NOT NULL DEFAULT 0
    CONSTRAINT event_group_pkey PRIMARY KEY (topic, name)
    CREATE UNIQUE INDEX event_group_pkey ON outboxd.event_group USING btree (topic, name)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE event_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE event_outbox WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
    seq bigint NOT NULL IDENTITY ALWAYS
    event_id bigint NOT NULL
    topic text NOT NULL
    since timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT event_outbox_pkey PRIMARY KEY (seq)
    CREATE UNIQUE INDEX event_outbox_pkey ON outboxd.event_outbox USING btree (seq)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE event_outbox_seq_seq
    GRANT select, update, usage TO outboxd_service
TABLE event_progress WITH (fillfactor=50)
    only_row boolean NOT NULL DEFAULT true
    newest bigint NOT NULL DEFAULT 0
    appended bigint NOT NULL DEFAULT 0
    lost_at timestamp with time zone
    restored_at timestamp with time zone
    restored bigint NOT NULL DEFAULT 0
    CONSTRAINT event_progress_pkey PRIMARY KEY (only_row)
    CONSTRAINT only_what_was_lost_is_restored CHECK (((lost_at IS NOT NULL) OR (restored_at IS NULL)))
    CONSTRAINT there_is_one_row_of_event_progress CHECK (only_row)
    CREATE UNIQUE INDEX event_progress_pkey ON outboxd.event_progress USING btree (only_row)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE event_publication
    number bigint NOT NULL
    through bigint NOT NULL
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    since timestamp with time zone NOT NULL
    bytes integer NOT NULL
    topic text NOT NULL
    event_ids bigint[] NOT NULL
    CONSTRAINT event_publication_pkey PRIMARY KEY (number)
    CONSTRAINT publications_have_events CHECK ((cardinality(event_ids) > 0))
    CREATE UNIQUE INDEX event_publication_pkey ON outboxd.event_publication USING btree (number)
    CREATE INDEX event_publication_topic ON outboxd.event_publication USING btree (topic, through)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE event_stream WITH (fillfactor=50)
    topic text NOT NULL
    position bigint NOT NULL
    CONSTRAINT event_stream_pkey PRIMARY KEY (topic)
    CREATE UNIQUE INDEX event_stream_pkey ON outboxd.event_stream USING btree (topic)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW events_waiting
    topic text
    count bigint
    oldest_age interval
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
VIEW health
    name text
    level text
    value text
    meaning text
    action text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE idempotency
    token text NOT NULL
    key text NOT NULL
    at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    digest bytea NOT NULL
    ids bigint[] NOT NULL
    CONSTRAINT idempotency_pkey PRIMARY KEY (token, key)
    CREATE INDEX idempotency_at ON outboxd.idempotency USING btree (at)
    CREATE UNIQUE INDEX idempotency_pkey ON outboxd.idempotency USING btree (token, key)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE inbox
    consumer text NOT NULL
    message_id text NOT NULL
    owner text NOT NULL
    received_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    responded_at timestamp with time zone
    response jsonb
    CONSTRAINT consumer_has_1_to_200_bytes CHECK (((octet_length(consumer) >= 1) AND (octet_length(consumer) <= 200)))
    CONSTRAINT inbox_pkey PRIMARY KEY (consumer, message_id, owner)
    CONSTRAINT message_id_has_1_to_512_bytes CHECK (((octet_length(message_id) >= 1) AND (octet_length(message_id) <= 512)))
    CONSTRAINT response_has_at_most_256_kib CHECK ((octet_length((response)::text) <= 262144))
    CONSTRAINT responses_and_only_they_have_responded_at CHECK (((response IS NULL) = (responded_at IS NULL)))
    CREATE UNIQUE INDEX inbox_pkey ON outboxd.inbox USING btree (consumer, message_id, owner)
    CREATE INDEX inbox_received ON outboxd.inbox USING btree (received_at)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE inbox_group
    consumer text NOT NULL
    role text NOT NULL
    CONSTRAINT inbox_group_pkey PRIMARY KEY (consumer, role)
    CREATE UNIQUE INDEX inbox_group_pkey ON outboxd.inbox_group USING btree (consumer, role)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE instance WITH (fillfactor=50)
    id integer NOT NULL IDENTITY ALWAYS
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    heartbeat_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    ttl interval NOT NULL
    stopped_at timestamp with time zone
    queue_counter bigint NOT NULL DEFAULT 0
    claimed_through timestamp with time zone
    fallback_since timestamp with time zone
    keeps_its_own boolean NOT NULL DEFAULT false
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
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE instance_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE instance_report WITH (fillfactor=50)
    instance integer NOT NULL
    reported_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    clock_skew_ms integer NOT NULL
    queue_reachable boolean
    queue_error text
    queue_policy text
    queue_memory_bytes bigint
    queue_memory_max_bytes bigint
    sessions_shared boolean
    topics text[]
    files_max bigint
    files_wanted bigint
    lacked text
    lacked_calls bigint
    lacked_since timestamp with time zone
    lacked_at timestamp with time zone
    limits jsonb
    shares jsonb
    CONSTRAINT instance_report_pkey PRIMARY KEY (instance)
    CREATE UNIQUE INDEX instance_report_pkey ON outboxd.instance_report USING btree (instance)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW instances
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
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
VIEW latency
    topic text
    sent bigint
    notify_to_sent_p50_ms numeric
    notify_to_sent_p95_ms numeric
    notify_to_sent_p99_ms numeric
    seen_to_sent_p50_ms numeric
    seen_to_sent_p95_ms numeric
    seen_to_sent_p99_ms numeric
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE leader_lease WITH (fillfactor=50)
    name text NOT NULL
    owner integer
    until timestamp with time zone
    since timestamp with time zone
    CONSTRAINT leader_lease_pkey PRIMARY KEY (name)
    CONSTRAINT owners_and_only_they_have_a_lease CHECK ((((owner IS NULL) = (until IS NULL)) AND ((owner IS NULL) = (since IS NULL))))
    CREATE UNIQUE INDEX leader_lease_pkey ON outboxd.leader_lease USING btree (name)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE notification_log WITH (fillfactor=50)
    id bigint NOT NULL IDENTITY ALWAYS
    created_at timestamp with time zone NOT NULL DEFAULT 
CASE
    WHEN (abs((((date_part('epoch'::text, clock_timestamp()) * (1000)::double precision) - (pg_sequence_last_value('outboxd.doorbell'::regclass))::double precision) - (2500)::double precision)) <= (2500)::double precision) THEN outboxd._ring_at_insert()
    ELSE clock_timestamp()
END
    send_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    expires_at timestamp with time zone
    finished_at timestamp with time zone
    due_at timestamp with time zone GENERATED 
CASE
    WHEN (status = 'PENDING'::outboxd.notification_status) THEN send_at
    ELSE NULL::timestamp with time zone
END
    failed_at timestamp with time zone
    status outboxd.notification_status NOT NULL DEFAULT 'PENDING'::outboxd.notification_status
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
    provider_id text
    CONSTRAINT headers_are_an_object_of_strings CHECK ((headers @@ 'strict ($.type() == "object" && !($.*.type() != "string"))'::jsonpath))
    CONSTRAINT headers_have_at_most_16_kib CHECK ((octet_length((headers)::text) <= 16384))
    CONSTRAINT keys_have_1_to_512_bytes CHECK (('[1,513)'::int4range @> ALL (ARRAY[octet_length(dedup_key), octet_length(ordering_key)])))
    CONSTRAINT notification_log_pkey PRIMARY KEY (id)
    CONSTRAINT payload_has_at_most_256_kib CHECK (((finished_at IS NOT NULL) OR (octet_length((payload)::text) <= 262144)))
    CONSTRAINT times_are_in_the_years_1_to_9999 CHECK (('["0001-01-01 00:00:00+00","9999-12-31 00:00:00+00"]'::tstzrange @> ALL (ARRAY[send_at, expires_at])))
    CONSTRAINT topic_has_1_to_200_and_recipient_1_to_2048_bytes CHECK ((('[1,201)'::int4range @> octet_length(topic)) AND ('[1,2049)'::int4range @> octet_length(recipient))))
    CREATE UNIQUE INDEX notification_log_dedup ON outboxd.notification_log USING btree (topic, dedup_key) WHERE (dedup_key IS NOT NULL)
    CREATE INDEX notification_log_due ON outboxd.notification_log USING btree (topic, due_at, id) WHERE (due_at IS NOT NULL)
    CREATE INDEX notification_log_due_key ON outboxd.notification_log USING btree (topic, ordering_key, due_at, id) WHERE ((due_at IS NOT NULL) AND (ordering_key IS NOT NULL))
    CREATE INDEX notification_log_failed ON outboxd.notification_log USING btree (failed_at) INCLUDE (topic) WHERE (failed_at IS NOT NULL)
    CREATE UNIQUE INDEX notification_log_pkey ON outboxd.notification_log USING btree (id)
    CREATE INDEX notification_log_recipient ON outboxd.notification_log USING btree (recipient, id)
    CREATE INDEX notification_log_second_due ON outboxd.notification_log USING btree (date_bin('00:00:01'::interval, due_at, '2000-01-01 00:00:00+00'::timestamp with time zone), topic) WHERE (due_at IS NOT NULL)
    CREATE TRIGGER ids_are_drawn_by_the_server BEFORE INSERT ON outboxd.notification_log FOR EACH ROW WHEN (((NOT has_table_privilege(('outboxd.notification_log'::regclass)::oid, 'UPDATE'::text)) AND (new.id <> currval('outboxd.notification_log_id_seq'::regclass)))) EXECUTE FUNCTION outboxd._refuse_id()
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
    GRANT insert (id) TO outboxd_app
    GRANT select (id) TO outboxd_app
    GRANT select (created_at) TO outboxd_app
    GRANT insert (send_at) TO outboxd_app
    GRANT select (send_at) TO outboxd_app
    GRANT insert (expires_at) TO outboxd_app
    GRANT select (status) TO outboxd_app
    GRANT select (epoch) TO outboxd_app
    GRANT select (attempts) TO outboxd_app
    GRANT insert (topic) TO outboxd_app
    GRANT select (topic) TO outboxd_app
    GRANT insert (recipient) TO outboxd_app
    GRANT insert (payload) TO outboxd_app
    GRANT insert (headers) TO outboxd_app
    GRANT insert (dedup_key) TO outboxd_app
    GRANT insert (ordering_key) TO outboxd_app
SEQUENCE notification_log_id_seq
    GRANT select TO outboxd_app
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
    provider_id text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE origin WITH (fillfactor=50)
    only_row boolean NOT NULL DEFAULT true
    system_identifier bigint
    database_oid oid
    phase text NOT NULL DEFAULT 'own'::text
    noticed_at timestamp with time zone
    adopted_as text
    log_through bigint NOT NULL DEFAULT 0
    schedules_through bigint NOT NULL DEFAULT 0
    position bigint NOT NULL DEFAULT 0
    is_past_outbox boolean NOT NULL DEFAULT false
    position_topic text NOT NULL DEFAULT ''::text
    position_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone
    CONSTRAINT it_is_the_same_or_a_new_one CHECK ((adopted_as = ANY (ARRAY['same'::text, 'new'::text])))
    CONSTRAINT origin_pkey PRIMARY KEY (only_row)
    CONSTRAINT phase_is_known_to_us CHECK ((phase = ANY (ARRAY['own'::text, 'setting aside'::text, 'waiting'::text, 'returning'::text, 'canceling'::text])))
    CONSTRAINT there_is_one_origin CHECK (only_row)
    CREATE UNIQUE INDEX origin_pkey ON outboxd.origin USING btree (only_row)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE outbox WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=5000)
    id bigint NOT NULL
    seq bigint NOT NULL DEFAULT nextval('outboxd.outbox_seq'::regclass)
    published_at timestamp with time zone
    lease_until timestamp with time zone
    retry_at timestamp with time zone
    epoch integer NOT NULL DEFAULT 0
    attempts integer NOT NULL DEFAULT 0
    instance integer
    route_step smallint NOT NULL DEFAULT 0
    channel_attempts smallint NOT NULL DEFAULT 0
    state outboxd.state NOT NULL DEFAULT 'ready'::outboxd.state
    cancel boolean NOT NULL DEFAULT false
    has_turn boolean NOT NULL DEFAULT false
    topic text NOT NULL
    ordering_key text
    waits_for text
    CONSTRAINT outbox_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX a_key_has_at_most_one_live_row ON outboxd.outbox USING btree (topic, ordering_key) WHERE has_turn
    CREATE INDEX outbox_due ON outboxd.outbox USING btree (topic, retry_at) WHERE (retry_at IS NOT NULL)
    CREATE INDEX outbox_fresh ON outboxd.outbox USING btree (topic, seq) WHERE ((ordering_key IS NULL) AND (retry_at IS NULL))
    CREATE INDEX outbox_key ON outboxd.outbox USING btree (topic, ordering_key, seq) WHERE (ordering_key IS NOT NULL)
    CREATE UNIQUE INDEX outbox_pkey ON outboxd.outbox USING btree (id)
    CREATE INDEX outbox_second_due ON outboxd.outbox USING btree (date_bin('00:00:01'::interval, retry_at, '2000-01-01 00:00:00+00'::timestamp with time zone), topic) WHERE (retry_at IS NOT NULL)
    CREATE INDEX outbox_waits_for ON outboxd.outbox USING btree (waits_for, retry_at) WHERE (waits_for <> ''::text)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW outbox_lag
    ready_unpublished bigint
    oldest_age interval
    published_last_minute bigint
    counted_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE outbox_seq
    GRANT select, update, usage TO outboxd_service
TABLE publication WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000)
    id bigint NOT NULL IDENTITY ALWAYS
    instance integer NOT NULL
    reserved_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    ids bigint[] NOT NULL
    CONSTRAINT publication_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX publication_pkey ON outboxd.publication USING btree (id)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE publication_id_seq
    GRANT select, update, usage TO outboxd_service
VIEW queue_state
    topic text
    status text
    count bigint
    oldest_age interval
    counted_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE retention_progress WITH (fillfactor=50)
    name text NOT NULL
    position bigint NOT NULL DEFAULT 0
    is_caught_up boolean NOT NULL DEFAULT false
    restarted_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT retention_progress_pkey PRIMARY KEY (name)
    CREATE UNIQUE INDEX retention_progress_pkey ON outboxd.retention_progress USING btree (name)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE route
    topic text NOT NULL
    position smallint NOT NULL
    channel text NOT NULL
    CONSTRAINT route_pkey PRIMARY KEY (topic, "position")
    CREATE UNIQUE INDEX route_pkey ON outboxd.route USING btree (topic, "position")
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE schedule
    id bigint NOT NULL IDENTITY ALWAYS
    name text NOT NULL
    cron text NOT NULL
    timezone text NOT NULL
    topic text NOT NULL
    audience text NOT NULL
    lead interval NOT NULL
    spread interval NOT NULL
    catch_up interval NOT NULL
    expires_after interval
    version integer NOT NULL DEFAULT 1
    created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    changed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    paused_at timestamp with time zone
    next_slot timestamp with time zone
    error text
    CONSTRAINT catch_up_is_up_to_a_week CHECK (((catch_up >= '00:00:00'::interval) AND (catch_up <= '7 days'::interval)))
    CONSTRAINT expires_after_is_a_second_to_30_days CHECK (((expires_after >= '00:00:01'::interval) AND (expires_after <= '30 days'::interval)))
    CONSTRAINT lead_is_up_to_a_day CHECK (((lead >= '00:00:00'::interval) AND (lead <= '1 day'::interval)))
    CONSTRAINT name_has_1_to_200_bytes CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 200)))
    CONSTRAINT schedule_name_key UNIQUE (name)
    CONSTRAINT schedule_pkey PRIMARY KEY (id)
    CONSTRAINT schedules_with_an_error_have_no_slot CHECK (((error IS NULL) OR (next_slot IS NULL)))
    CONSTRAINT spread_is_up_to_a_day CHECK (((spread >= '00:00:00'::interval) AND (spread <= '1 day'::interval)))
    CONSTRAINT topic_has_1_to_200_bytes CHECK (((octet_length(topic) >= 1) AND (octet_length(topic) <= 200)))
    CREATE UNIQUE INDEX schedule_name_key ON outboxd.schedule USING btree (name)
    CREATE UNIQUE INDEX schedule_pkey ON outboxd.schedule USING btree (id)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE schedule_id_seq
    GRANT select, update, usage TO outboxd_service
TABLE schedule_recipient
    run_id bigint NOT NULL
    attempt integer NOT NULL
    n bigint NOT NULL
    recipient text NOT NULL
    payload jsonb NOT NULL
    CONSTRAINT payload_has_at_most_256_kib CHECK ((octet_length((payload)::text) <= 262144))
    CONSTRAINT recipient_has_1_to_2048_bytes CHECK (((octet_length(recipient) >= 1) AND (octet_length(recipient) <= 2048)))
    CONSTRAINT schedule_recipient_pkey PRIMARY KEY (run_id, attempt, n)
    CREATE UNIQUE INDEX schedule_recipient_pkey ON outboxd.schedule_recipient USING btree (run_id, attempt, n)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE schedule_run WITH (fillfactor=70)
    id bigint NOT NULL IDENTITY ALWAYS
    schedule_id bigint NOT NULL
    version integer NOT NULL
    schedule text NOT NULL
    topic text NOT NULL
    audience text NOT NULL
    spread interval NOT NULL
    expires_after interval
    slot timestamp with time zone NOT NULL
    release_at timestamp with time zone NOT NULL
    state text NOT NULL
    attempt integer NOT NULL DEFAULT 0
    tries integer NOT NULL DEFAULT 0
    staged integer
    position bigint NOT NULL DEFAULT 0
    recipients bigint
    prepared bigint NOT NULL DEFAULT 0
    released bigint NOT NULL DEFAULT 0
    error text
    started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
    prepared_at timestamp with time zone
    ended_at timestamp with time zone
    CONSTRAINT a_slot_runs_once UNIQUE (schedule_id, version, slot)
    CONSTRAINT ended_runs_and_only_they_have_ended_at CHECK (((state = ANY (ARRAY['preparing'::text, 'prepared'::text])) = (ended_at IS NULL)))
    CONSTRAINT failed_runs_have_an_error CHECK (((state <> 'failed'::text) OR (error IS NOT NULL)))
    CONSTRAINT schedule_run_pkey PRIMARY KEY (id)
    CONSTRAINT state_is_known_to_us CHECK ((state = ANY (ARRAY['preparing'::text, 'prepared'::text, 'released'::text, 'missed'::text, 'paused'::text, 'failed'::text, 'canceled'::text])))
    CREATE UNIQUE INDEX a_slot_runs_once ON outboxd.schedule_run USING btree (schedule_id, version, slot)
    CREATE INDEX schedule_run_open ON outboxd.schedule_run USING btree (id) WHERE ((ended_at IS NULL) OR (staged IS NOT NULL))
    CREATE UNIQUE INDEX schedule_run_pkey ON outboxd.schedule_run USING btree (id)
    CREATE INDEX schedule_run_slot ON outboxd.schedule_run USING btree (slot)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
SEQUENCE schedule_run_id_seq
    GRANT select, update, usage TO outboxd_service
VIEW schedule_runs
    run bigint
    schedule text
    slot timestamp with time zone
    state text
    recipients bigint
    prepared bigint
    released bigint
    error text
    topic text
    audience text
    started_at timestamp with time zone
    prepared_at timestamp with time zone
    release_at timestamp with time zone
    ended_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE schedule_secret
    only_row boolean NOT NULL DEFAULT true
    secret bytea NOT NULL DEFAULT sha256(((uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) || uuid_send(gen_random_uuid())))
    CONSTRAINT schedule_secret_pkey PRIMARY KEY (only_row)
    CONSTRAINT there_is_one_secret CHECK (only_row)
    CREATE UNIQUE INDEX schedule_secret_pkey ON outboxd.schedule_secret USING btree (only_row)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW schedules
    name text
    cron text
    timezone text
    topic text
    audience text
    lead interval
    spread interval
    catch_up interval
    expires_after interval
    state text
    next_slot timestamp with time zone
    last_slot timestamp with time zone
    last_state text
    error text
    created_at timestamp with time zone
    changed_at timestamp with time zone
    paused_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE setting
    only_row boolean NOT NULL DEFAULT true
    install_id text NOT NULL DEFAULT "left"(replace((gen_random_uuid())::text, '-'::text, ''::text), 12)
    signing_key bytea NOT NULL DEFAULT decode(replace(((gen_random_uuid())::text || (gen_random_uuid())::text), '-'::text, ''::text), 'hex'::text)
    audience_rows_max bigint NOT NULL DEFAULT 5000000
    audience_time_max interval NOT NULL DEFAULT '00:02:00'::interval
    sql_installed text NOT NULL DEFAULT ''::text
    CONSTRAINT audience_has_1_row_or_more CHECK ((audience_rows_max > 0))
    CONSTRAINT audience_time_is_between_100_ms_and_1_hour CHECK (((audience_time_max >= '00:00:00.1'::interval) AND (audience_time_max <= '01:00:00'::interval)))
    CONSTRAINT setting_pkey PRIMARY KEY (only_row)
    CONSTRAINT there_is_one_row_of_settings CHECK (only_row)
    CREATE UNIQUE INDEX setting_pkey ON outboxd.setting USING btree (only_row)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE snapshot WITH (fillfactor=50)
    only_row boolean NOT NULL DEFAULT true
    taken_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone
    cost interval NOT NULL DEFAULT '00:00:00'::interval
    rows bigint NOT NULL DEFAULT 0
    ready bigint NOT NULL DEFAULT 0
    ready_since timestamp with time zone
    is_large boolean NOT NULL DEFAULT false
    CONSTRAINT snapshot_pkey PRIMARY KEY (only_row)
    CONSTRAINT there_is_one_snapshot CHECK (only_row)
    CREATE UNIQUE INDEX snapshot_pkey ON outboxd.snapshot USING btree (only_row)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE snapshot_count
    topic text NOT NULL
    status text NOT NULL
    count bigint NOT NULL
    oldest_since timestamp with time zone
    CONSTRAINT snapshot_count_pkey PRIMARY KEY (topic, status)
    CREATE UNIQUE INDEX snapshot_count_pkey ON outboxd.snapshot_count USING btree (topic, status)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE snapshot_topic
    topic text NOT NULL
    pending bigint NOT NULL
    queued bigint NOT NULL
    processing bigint NOT NULL
    dead bigint NOT NULL
    waiting_since timestamp with time zone
    sent bigint NOT NULL
    failed bigint NOT NULL
    retried bigint NOT NULL
    CONSTRAINT snapshot_topic_pkey PRIMARY KEY (topic)
    CREATE UNIQUE INDEX snapshot_topic_pkey ON outboxd.snapshot_topic USING btree (topic)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE snapshot_waiting
    reason text NOT NULL
    topic text NOT NULL
    channel text
    origin text
    limited_by text
    per_second double precision
    is_lag boolean NOT NULL
    count bigint NOT NULL
    waits_since timestamp with time zone
    ready_since timestamp with time zone
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE statistics_channel WITH (fillfactor=50)
    minute timestamp with time zone NOT NULL
    channel text NOT NULL
    origin text NOT NULL
    sent bigint NOT NULL DEFAULT 0
    failed bigint NOT NULL DEFAULT 0
    unknown bigint NOT NULL DEFAULT 0
    last_error text
    last_error_at timestamp with time zone
    CONSTRAINT statistics_channel_pkey PRIMARY KEY (minute, channel, origin)
    CREATE UNIQUE INDEX statistics_channel_pkey ON outboxd.statistics_channel USING btree (minute, channel, origin)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE statistics_minute WITH (fillfactor=50)
    minute timestamp with time zone NOT NULL
    seq_first bigint NOT NULL
    seq_last bigint NOT NULL
    published bigint NOT NULL DEFAULT 0
    sent bigint NOT NULL DEFAULT 0
    failed bigint NOT NULL DEFAULT 0
    retried bigint NOT NULL DEFAULT 0
    CONSTRAINT statistics_minute_pkey PRIMARY KEY (minute)
    CREATE UNIQUE INDEX statistics_minute_pkey ON outboxd.statistics_minute USING btree (minute)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE statistics_span WITH (fillfactor=50)
    minute timestamp with time zone NOT NULL
    measure text NOT NULL
    subject text NOT NULL
    origin text NOT NULL DEFAULT ''::text
    bucket smallint NOT NULL
    count bigint NOT NULL
    CONSTRAINT spans_measure_notify_seen_or_call CHECK ((measure = ANY (ARRAY['notify'::text, 'seen'::text, 'call'::text])))
    CONSTRAINT statistics_span_pkey PRIMARY KEY (minute, measure, subject, origin, bucket)
    CREATE UNIQUE INDEX statistics_span_pkey ON outboxd.statistics_span USING btree (minute, measure, subject, origin, bucket)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
TABLE statistics_topic WITH (fillfactor=50)
    minute timestamp with time zone NOT NULL
    topic text NOT NULL
    sent bigint NOT NULL DEFAULT 0
    failed bigint NOT NULL DEFAULT 0
    retried bigint NOT NULL DEFAULT 0
    CONSTRAINT statistics_topic_pkey PRIMARY KEY (minute, topic)
    CREATE UNIQUE INDEX statistics_topic_pkey ON outboxd.statistics_topic USING btree (minute, topic)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW stuck
    id bigint
    topic text
    recipient text
    reason text
    stuck_for interval
    since timestamp with time zone
    channel text
    attempts integer
    worker integer
    ordering_key text
    origin text
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
VIEW throughput
    minute timestamp with time zone
    queued bigint
    sent bigint
    failed bigint
    retried bigint
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
TABLE topic
    name text NOT NULL
    paused_at timestamp with time zone
    resumed_at timestamp with time zone
    CONSTRAINT topic_has_1_to_200_bytes CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 200)))
    CONSTRAINT topic_pkey PRIMARY KEY (name)
    CREATE UNIQUE INDEX topic_pkey ON outboxd.topic USING btree (name)
    POLICY grants_decide USING true CHECK true
    GRANT delete, insert, select, update TO outboxd_service
VIEW waiting
    reason text
    topic text
    channel text
    count bigint
    oldest interval
    limited_by text
    expected_end timestamp with time zone
    counted_at timestamp with time zone
    GRANT select TO outboxd_operator
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
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
    GRANT select TO outboxd_reader
    GRANT delete, insert, select, update TO outboxd_service
FUNCTION _admit(topics text[], keys text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _begin_retention_step(name text, owner integer, rescan interval) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _bulk_start(action text, filter jsonb, rows_max bigint, dry_run boolean) RETURNS TABLE(matched bigint, done bigint, bulk_id bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _bulk_step() RETURNS TABLE(bulk_id bigint, changed bigint, ended boolean) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _bulk_where(action text, filter jsonb, dry_run boolean) RETURNS TABLE(matched bigint, done bigint, bulk_id bigint, note text) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _cancel(ids bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _cancel_runs(schedule_id bigint, slots_after timestamp with time zone) RETURNS bigint LANGUAGE plpgsql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _cause(text) RETURNS text LANGUAGE sql IMMUTABLE GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _circuit_changed(action text, channel text, origin text, was_held boolean, rows_max integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _count_active() RETURNS TABLE(topic text, status text, count bigint, oldest_since timestamp with time zone) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _count_waiting() RETURNS TABLE(reason text, topic text, channel text, held tid, limited_by text, per_second double precision, is_lag boolean, count bigint, waits_since timestamp with time zone, ready_since timestamp with time zone) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp, jit=off, enable_seqscan=off, enable_mergejoin=off, enable_hashjoin=on GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _database() RETURNS text LANGUAGE sql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _delete_older_by_id(table_name text, at text, owner integer, rows integer, kept interval, rescan interval) RETURNS TABLE(is_caught_up boolean, deleted bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _delete_older_by_time(table_name text, at text, owner integer, rows integer, kept interval, rescan interval) RETURNS TABLE(is_caught_up boolean, deleted bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _discard(ids bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _end_retention_step(name text, through bigint, is_caught_up boolean) RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _hasten(channel text, origin text, rows_max integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _is_held_by_us(key bigint) RETURNS boolean LANGUAGE plpgsql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _items(items jsonb) RETURNS TABLE(n bigint, recipient text, payload jsonb, send_at timestamp with time zone, dedup_key text, ordering_key text, expires_at timestamp with time zone, headers jsonb) LANGUAGE sql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _masked(text) RETURNS text LANGUAGE sql IMMUTABLE GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _masked_origin(text) RETURNS text LANGUAGE sql IMMUTABLE GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _origin_place(text) RETURNS text LANGUAGE sql STABLE STRICT GRANT TO outboxd_service
FUNCTION _origin_work() RETURNS bigint LANGUAGE sql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _owns_lease(name text, owner integer) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _pick_dead(filter jsonb, upto timestamp with time zone, after_at timestamp with time zone, after_id bigint, scan_max integer) RETURNS TABLE(part text, at timestamp with time zone, id bigint, matches boolean) LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _pick_waiting(filter jsonb, upto timestamp with time zone, phase smallint, after_part text, after_at timestamp with time zone, after_id bigint, scan_max integer) RETURNS TABLE(part text, at timestamp with time zone, id bigint, matches boolean) LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _planned_for(sees_all boolean) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _plural(n bigint, noun text) RETURNS text LANGUAGE sql IMMUTABLE GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _post(token text, key text, digest bytea, items jsonb) RETURNS TABLE(outcome text, ids bigint[]) LANGUAGE plpgsql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _post_many(items jsonb) RETURNS bigint[] LANGUAGE plpgsql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _read_audience(audience text, slot timestamp with time zone, rows_max bigint) RETURNS TABLE(recipient text, payload jsonb) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _receipts_of(consumer text) RETURNS text LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _recognise() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _refuse_id() RETURNS trigger LANGUAGE plpgsql SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject(what text, topic text, recipient text, payload jsonb, send_at timestamp with time zone, dedup_key text, ordering_key text, expires_at timestamp with time zone, headers jsonb) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_audience(what text, audience text) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_cron(what text, cron text) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_filter(what text, filter jsonb, allowed text[]) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_headers(what text, headers jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_items(topic text, items jsonb) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _reject_schedule(what text, s outboxd.schedule) RETURNS void LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _requeue(ids bigint[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _ring() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _ring_at_insert() RETURNS timestamp with time zone LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION _sees_all() RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_reader, outboxd_service
FUNCTION _status_for(action text, id bigint) RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _step_origin(rows_max integer DEFAULT 2000) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _system_identifier() RETURNS bigint LANGUAGE plpgsql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _take_snapshot() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION _token() RETURNS text LANGUAGE sql STABLE SET search_path=pg_catalog, pg_temp GRANT TO outboxd_service
FUNCTION adopt(adopt_as text, replaces text DEFAULT NULL::text) RETURNS TABLE(phase text, waiting bigint, install_id text, note text) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION alter_schedule(name text, cron text DEFAULT NULL::text, timezone text DEFAULT NULL::text, topic text DEFAULT NULL::text, audience text DEFAULT NULL::text, lead interval DEFAULT NULL::interval, spread interval DEFAULT NULL::interval, catch_up interval DEFAULT NULL::interval, expires_after interval DEFAULT NULL::interval) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION cancel(id bigint) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION cancel_where(filter jsonb, dry_run boolean DEFAULT true) RETURNS TABLE(matched bigint, done bigint, bulk_id bigint, note text) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION close_circuit(channel text, origin text DEFAULT ''::text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION create_schedule(name text, cron text, timezone text, topic text, audience text, lead interval DEFAULT '00:10:00'::interval, spread interval DEFAULT '00:00:00'::interval, catch_up interval DEFAULT '01:00:00'::interval, expires_after interval DEFAULT NULL::interval) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION discard(id bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION discard_where(filter jsonb, dry_run boolean DEFAULT true) RETURNS TABLE(matched bigint, done bigint, bulk_id bigint, note text) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION drop_schedule(name text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION notify(topic text, recipient text, payload json, send_at timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, ordering_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE sql GRANT TO outboxd_app, outboxd_service
FUNCTION notify(topic text, recipient text, payload jsonb, send_at timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, ordering_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER GRANT TO outboxd_app, outboxd_service
FUNCTION notify(topic text, recipient text, payload text, send_at timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, ordering_key text DEFAULT NULL::text, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE sql GRANT TO outboxd_app, outboxd_service
FUNCTION notify_many(topic text, items jsonb) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION pause(topic text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION pause_channel(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION pause_schedule(name text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION probe_channel(channel text, origin text DEFAULT ''::text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION publish(topic text, key text, payload jsonb, headers jsonb DEFAULT NULL::jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION receive(consumer text, message_id text) RETURNS TABLE(first boolean, response jsonb) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION replay_events(topic text, since timestamp with time zone) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION resend(id bigint) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION respond(consumer text, message_id text, response jsonb) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_service
FUNCTION resume(topic text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION resume_channel(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION resume_schedule(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION retry(id bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION retry_dead(topic text, since timestamp with time zone DEFAULT NULL::timestamp with time zone, max integer DEFAULT NULL::integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION retry_where(filter jsonb, dry_run boolean DEFAULT true) RETURNS TABLE(matched bigint, done bigint, bulk_id bigint, note text) LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION share_consumer(consumer text, with_role text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION status(id bigint) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_app, outboxd_operator, outboxd_reader, outboxd_service
FUNCTION stop_bulk(id bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION unshare_consumer(consumer text, with_role text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path=pg_catalog, pg_temp GRANT TO outboxd_operator, outboxd_service
FUNCTION why(id bigint) RETURNS TABLE(reason text, explanation text, action text, since timestamp with time zone, until timestamp with time zone, behind bigint, place bigint, channel text, origin text, worker integer, paused_by text) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path=pg_catalog, pg_temp, jit=off GRANT TO outboxd_operator, outboxd_reader, outboxd_service
GRANT usage ON SCHEMA outboxd TO outboxd_app
GRANT usage ON SCHEMA outboxd TO outboxd_operator
GRANT usage ON SCHEMA outboxd TO outboxd_reader
GRANT usage ON SCHEMA outboxd TO outboxd_service
