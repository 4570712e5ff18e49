# bench/commit snapshot and idle: what others hold open, and what doing nothing costs. To be sourced.
# shellcheck shell=bash

# Each on a database of its own: what the one before left dead is not in its way.
measure_snapshot() {
    local rows=$1 what
    install_npm_peers
    load; echo
    for what in ${HELD:-snapshot transaction}; do
        psql -qX -c "CREATE DATABASE held_$what"
        export DATABASE_URL=postgres://postgres@127.0.0.1:$PGPORT/held_$what
        "$outboxd" migrate >/dev/null 2>&1
        http_port=$(free_port)
        start_outboxd OUTBOXD_QUEUE_KIND=stream OUTBOXD_QUEUE_PREFIX="$what" OUTBOXD_HTTP_ADDR="127.0.0.1:$http_port"
        HTTP_PORT=$http_port node bench/lib/commit/held.mjs "$what" "$rows"
        stop_outboxd
    done
}

# name, the most that it may use of a core in per cent
show_idle() {
    local figures total
    figures=$(node bench/lib/commit/idle.mjs "$idle_seconds" \
        "outboxd=$instance" "Postgres=$postgres_pid" "(Redis)=$redis_pid")
    total=$(tail -n 1 <<<"$figures")
    awk -v name="$1" -v most="$2" -v total="${total% %}" -v parts="$(head -n 1 <<<"$figures")" 'BEGIN {
        verdict = total < most ? "holds" : "DOES NOT HOLD"
        printf "%s: %.2f %% of a core (less than %s %%): %s\n    %s\n", name, total, most, verdict, parts }'
}

measure_idle() {
    local idle_seconds=$1 rows=${ROWS:-100000}
    needs node
    psql -qX -o /dev/null -c "SELECT outboxd.pause('paused')"
    start_outboxd OUTBOXD_QUEUE_KIND=stream
    load; echo
    # Until it has fallen asleep, and what it did at its start is over.
    sleep "${IDLE_FOR:-10}"
    show_idle 'nothing to do' 1
    psql -qX -o /dev/null -c "SELECT count(outboxd.notify('paused', 'device-' || n, '{\"text\": \"hello\"}'))
                                FROM generate_series(1, $rows) n"
    # Ours, so that autovacuum does not come meanwhile.
    psql -qX -c 'VACUUM ANALYZE' -c CHECKPOINT
    sleep "${IDLE_FOR:-10}"
    show_idle "beside $rows rows of a paused topic" 2
    stop_outboxd
}
