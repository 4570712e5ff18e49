# bench/commit app and instructions: what notify() costs the app's transactions. To be sourced.
# shellcheck shell=bash

app_clients=32
# The least that notify() may reach of the rate with both rows written by hand, in per cent.
app_floor=85

# The tables of an app that does without outboxd, a topic that nobody publishes, and the scripts of its transactions.
prepare_app() {
    psql -qX -v ON_ERROR_STOP=1 -o /dev/null <<'SQL'
CREATE TABLE business (id bigserial PRIMARY KEY, body jsonb);
CREATE TABLE plain (id bigserial PRIMARY KEY, topic text, recipient text, payload jsonb, at timestamptz DEFAULT now());
CREATE TABLE app_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, recipient text NOT NULL,
    payload jsonb NOT NULL, status text NOT NULL DEFAULT 'QUEUED', created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON app_log (created_at);
CREATE TABLE app_outbox (id bigint PRIMARY KEY, topic text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON app_outbox (topic, id);
-- This is the app's side, not deliveries.
SELECT outboxd.pause('paid');
SQL
    local business="INSERT INTO business (body) VALUES ('{\"order\": 4711, \"items\": [1, 2, 3]}');"
    local bytes="'paid', 'device-4711', '{\"text\": \"Your order has been paid and is on its way.\"}'"
    local plain="INSERT INTO plain (topic, recipient, payload) VALUES ($bytes);"
    transaction plain "$business" "$plain"
    transaction hand "$business" "INSERT INTO app_log (topic, recipient, payload) VALUES ($bytes);" \
        "INSERT INTO app_outbox (id, topic) VALUES (currval('app_log_id_seq'), 'paid');"
    transaction notify "$business" "SELECT outboxd.notify($bytes);"
    transaction all "$business" "SELECT outboxd.notify($bytes, now(), NULL, NULL, NULL, NULL);"
    transaction always "$business" "$plain" 'NOTIFY bench;'
}

# name, statements: a script of one transaction, a statement a line.
transaction() { printf '%s\n' 'BEGIN;' "${@:2}" 'COMMIT;' >"$BENCH_DIR/$1.sql"; }

# Transactions a second of a script, by protocol.
rate() {
    pgbench -n -M "$protocol" -c "$app_clients" -j 2 -T "$seconds" -f "$BENCH_DIR/$1.sql" 2>&1 |
        awk '/^tps/ { tps = $3 } END { if (!tps) exit 1; printf "%.1f\n", tps }' || die "pgbench failed with $1.sql"
}

# A notification of another topic every 20 ms, so that the instance has something to do all the time.
start_trickle() {
    echo "SELECT outboxd.notify('other', 'device-1', '{}');" >"$BENCH_DIR/trickle.sql"
    pgbench -n -c 1 -R 50 -T 3600 -f "$BENCH_DIR/trickle.sql" >/dev/null 2>&1 &
    trickle=$!
    ends_with_us "$trickle"
}
stop_trickle() { kill "$trickle"; wait "$trickle" || true; }

# The pairs of one state: appends lines "state protocol hand notify plain" to the file; plain only in every second pair,
# as it is only reported.
measure_pairs() {
    local pair hand notify plain
    for pair in $(seq "$pairs"); do
        plain=-
        # Whoever goes first goes last next time.
        if ((pair % 2)); then
            hand=$(rate hand) notify=$(rate notify)
        else
            notify=$(rate notify) hand=$(rate hand)
        fi
        ((pair % 2 == 0 && pairs > 1)) || plain=$(rate plain)
        echo "$state $protocol $hand $notify $plain" >>"$BENCH_DIR/pairs"
    done
}

measure_app() {
    local seconds=$1 pairs=${PAIRS:-10} state protocol
    prepare_app
    printf '%s pairs of %s s for each line, %s clients; %s\n' "$pairs" "$seconds" "$app_clients" "$(load)"
    printf '%-10s %-8s %9s %9s %9s   %-24s %s\n' protocol outboxd 'hand/s' 'notify/s' 'plain/s' \
        'of both rows by hand' 'of one plain INSERT'
    for protocol in simple prepared; do
        for state in down asleep awake; do
            psql -qX -c 'TRUNCATE business, plain, app_log, app_outbox' -c CHECKPOINT \
                -c 'TRUNCATE outboxd.outbox, outboxd.notification_log'
            [[ $state == down ]] || start_outboxd OUTBOXD_QUEUE_KIND=stream
            [[ $state != awake ]] || start_trickle
            measure_pairs
            [[ $state != awake ]] || stop_trickle
            [[ $state == down ]] || stop_outboxd
            show_pairs
        done
        printf '%-10s %38.0f   one plain INSERT with a NOTIFY in every transaction\n' "$protocol" "$(rate always)"
    done
}

# Medians of the pairs of this state and protocol, with the range of the ratios.
show_pairs() {
    python3 - "$BENCH_DIR/pairs" "$state" "$protocol" "$app_floor" <<'PY'
import sys
from statistics import median

path, state, protocol, floor = sys.argv[1:]
rows = [line.split()[2:] for line in open(path) if line.split()[:2] == [state, protocol]]
hand, notify = ([float(row[i]) for row in rows] for i in (0, 1))
plain = [float(row[2]) for row in rows if row[2] != "-"]


def ratios(i):
    return [100 * float(row[1]) / float(row[i]) for row in rows if row[i] != "-"]


def shown(values):
    return f"{median(values):.1f} % ({min(values):.0f}–{max(values):.0f})"


verdict = "" if median(ratios(0)) >= float(floor) else f"   BELOW the floor of {floor} %"
print(f"{protocol:10} {state:8} {median(hand):9.0f} {median(notify):9.0f} {median(plain):9.0f}   "
      f"{shown(ratios(0)):24} {shown(ratios(2))}{verdict}")
PY
}

# Instructions of one transaction of a script: those of 350 less those of 50, so that starting and warming up do not
# count.
instructions() {
    local as=() n counted=()
    ((EUID != 0)) || as=(setpriv --reuid=postgres --regid=postgres --init-groups --)
    for n in 50 350; do
        for _ in $(seq "$n"); do cat "$BENCH_DIR/$1.sql"; done >"$BENCH_DIR/many.sql"
        "${as[@]}" valgrind --tool=callgrind --callgrind-out-file="$BENCH_DIR/pg/callgrind" \
            "$pg_bin/postgres" --single -D "$BENCH_DIR/pg/data" -c fsync=off -c autovacuum=off postgres \
            <"$BENCH_DIR/many.sql" >/dev/null 2>"$BENCH_DIR/single.log" ||
            { cat "$BENCH_DIR/single.log" >&2; die 'the backend failed'; }
        counted+=("$(awk '/^(totals|summary):/ { print $2; exit }' "$BENCH_DIR/pg/callgrind")")
    done
    echo $(((counted[1] - counted[0]) / 300))
}

measure_instructions() {
    needs valgrind
    prepare_app
    kill -INT "$postgres_pid"
    wait "$postgres_pid" || true
    postgres_pid=''
    local script plain='' count
    for script in plain hand notify all; do
        count=$(instructions "$script")
        : "${plain:=$count}"
        printf '%-8s %8d instructions a transaction, %7d more than plain\n' "$script" "$count" $((count - plain))
    done
}
