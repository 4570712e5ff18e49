# bench/commit api: what POST /v1/notifications reaches of the rate of the same notify(). To be sourced.
# shellcheck shell=bash

# The least that it may reach, in per cent.
api_floor=60
api_clients=32

# Requests a second of a Lua script of wrk's; every answer must be a 201.
post_rate() {
    local out
    out=$(wrk -t 2 -c "$api_clients" -d "${seconds}s" -s "$BENCH_DIR/$1.lua" "http://$OUTBOXD_HTTP_ADDR/v1/notifications") ||
        die "wrk failed: $out"
    ! grep -q 'Non-2xx\|Socket errors' <<<"$out" || die "not every request was taken: $out"
    awk '/^Requests\/sec/ { print $2 }' <<<"$out"
}

# Transactions a second of the same notify().
notify_rate() {
    pgbench -n -M prepared -c "$api_clients" -j 2 -T "$seconds" -f "$BENCH_DIR/call.sql" 2>&1 |
        awk '/^tps/ { tps = $3 } END { if (!tps) exit 1; print tps }' || die 'pgbench failed'
}

measure_api() {
    needs wrk
    local seconds=$1 pairs=${PAIRS:-5} pair notify post once
    OUTBOXD_HTTP_ADDR=127.0.0.1:$(free_port)
    export OUTBOXD_HTTP_ADDR
    # This is the app's side, not deliveries.
    psql -qX -o /dev/null -c "SELECT outboxd.pause('paid')"
    echo "SELECT outboxd.notify('paid', 'device-4711', '{\"text\": \"Your order has been paid and is on its way.\"}');" \
        >"$BENCH_DIR/call.sql"
    cat >"$BENCH_DIR/post.lua" <<'LUA'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"topic": "paid", "recipient": "device-4711", "payload": {"text": "Your order has been paid and is on its way."}}'
LUA
    cat "$BENCH_DIR/post.lua" - >"$BENCH_DIR/once.lua" <<'LUA'
local thread = 0
function setup(t) t:set("number", thread); thread = thread + 1 end
local n = 0
local run = os.time()
function request()
    n = n + 1
    wrk.headers["Idempotency-Key"] = run .. "-" .. number .. "-" .. n
    return wrk.format()
end
LUA
    start_outboxd OUTBOXD_QUEUE_KIND=stream OUTBOXD_ROLE=api
    printf '%s pairs of %s s, %s clients; %s\n' "$pairs" "$seconds" "$api_clients" "$(load)"
    # The first run makes connections and plans.
    post_rate post >/dev/null
    for pair in $(seq "$pairs"); do
        psql -qX -c 'TRUNCATE outboxd.outbox, outboxd.notification_log, outboxd.idempotency' -c CHECKPOINT
        if ((pair % 2)); then
            notify=$(notify_rate) post=$(post_rate post)
        else
            post=$(post_rate post) notify=$(notify_rate)
        fi
        once=$(post_rate once)
        echo "$notify $post $once" >>"$BENCH_DIR/posts"
    done
    stop_outboxd
    python3 - "$BENCH_DIR/posts" "$api_floor" <<'PY'
import sys
from statistics import median

rows = [[float(n) for n in line.split()] for line in open(sys.argv[1])]
notify, post, once = (median(column) for column in zip(*rows))
ratios = [sorted(100 * row[i] / row[0] for row in rows) for i in (1, 2)]
shown = [f"{median(r):.0f} % ({r[0]:.0f}–{r[-1]:.0f})" for r in ratios]
print(f"notify() by pgbench, prepared      {notify:8.0f}/s")
print(f"POST /v1/notifications             {post:8.0f}/s   {shown[0]}")
print(f"the same with an Idempotency-Key   {once:8.0f}/s   {shown[1]}")
if median(ratios[0]) < float(sys.argv[2]):
    print(f"BELOW the floor of {sys.argv[2]} %")
PY
}
