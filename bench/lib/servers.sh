# A Postgres, a Redis and an nginx of a bench's own, on free loopback ports; gone when it ends. To be sourced:
#
#   . bench/lib/servers.sh
#   find_outboxd                         sets outboxd: $BENCH_OUTBOXD, else a release build
#   start_postgres [setting=value …]     sets PGHOST, PGPORT, PGUSER, PGDATABASE and DATABASE_URL
#   start_pgbouncer login …              in transaction mode before that Postgres; sets PGBOUNCER_ADDRESS
#   start_redis                          sets REDIS_URL
#   start_sink [addresses]               sets SINK_URL: answers every request with 200, counts them at /status; listens
#                                        on so many addresses from 127.0.0.1 on; adds what is in $BENCH_DIR/nginx.d
#
# Their process ids are in postgres_pid, redis_pid and nginx_pid. $BENCH_DIR is the bench's directory, removed at the
# end. What else a bench starts it hands to `ends_with_us PID`.
# shellcheck shell=bash

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
pg_bin=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1)")
BENCH_DIR=$(mktemp -d -t outboxd-bench-XXXXXXXX)
export BENCH_DIR
chmod 755 "$BENCH_DIR"
bench_pids=()
postgres_pid='' redis_pid='' nginx_pid=''

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
needs() {
    local program
    for program in "$@"; do command -v "$program" >/dev/null || die "$program is missing: install it"; done
}
ends_with_us() { bench_pids+=("$1"); }
load() { printf 'load %s on %s cores' "$(cut -d' ' -f1 /proc/loadavg)" "$(nproc)"; }

# Only what was started here is ended, by its own id.
finish() {
    trap - EXIT
    local pid
    for pid in "${bench_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    # SIGQUIT ends Postgres at once.
    [[ -z $postgres_pid ]] || kill -QUIT "$postgres_pid" 2>/dev/null || true
    wait
    rm -rf -- "$BENCH_DIR"
}
trap finish EXIT
trap 'exit 130' INT TERM

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

find_outboxd() {
    if [[ -n ${BENCH_OUTBOXD:-} ]]; then
        outboxd=$(readlink -f "$BENCH_OUTBOXD")
        [[ -x $outboxd ]] || die "BENCH_OUTBOXD=$BENCH_OUTBOXD is no program: name a build of outboxd"
    else
        needs cargo
        cargo build --release --quiet --locked
        outboxd=$PWD/target/release/outboxd
    fi
}

# Defaults otherwise: every commit waits for the disk.
start_postgres() {
    [[ -x $pg_bin/initdb ]] || die 'Postgres is missing (Debian: postgresql)'
    needs python3
    local as=() setting settings=()
    mkdir "$BENCH_DIR/pg"
    if ((EUID == 0)); then
        as=(setpriv --reuid=postgres --regid=postgres --init-groups --)
        chown postgres: "$BENCH_DIR/pg"
    fi
    for setting in "$@"; do settings+=(-c "$setting"); done
    export PGHOST=127.0.0.1 PGPORT PGUSER=postgres PGDATABASE=postgres DATABASE_URL
    PGPORT=$(free_port)
    DATABASE_URL=postgres://postgres@127.0.0.1:$PGPORT/postgres
    (cd "$BENCH_DIR/pg" && "${as[@]}" "$pg_bin/initdb" -D data -U postgres -A trust -E UTF8 --locale=C >/dev/null)
    "${as[@]}" "$pg_bin/postgres" -D "$BENCH_DIR/pg/data" -p "$PGPORT" -k "$BENCH_DIR/pg" -h 127.0.0.1 \
        -c max_connections=200 "${settings[@]}" >"$BENCH_DIR/pg.log" 2>&1 &
    postgres_pid=$!
    until "$pg_bin/pg_isready" -q; do
        kill -0 "$postgres_pid" 2>/dev/null || { cat "$BENCH_DIR/pg.log" >&2; die 'Postgres does not start'; }
        sleep 0.1
    done
}

# Sessions take turns on the connections there are, five at most: what one transaction prepares the next may not find.
start_pgbouncer() {
    needs pgbouncer
    local as=() login port; port=$(free_port)
    export PGBOUNCER_ADDRESS=127.0.0.1:$port
    mkdir "$BENCH_DIR/pgbouncer"
    for login in "$@"; do printf '"%s" ""\n' "$login"; done >"$BENCH_DIR/pgbouncer/logins"
    cat >"$BENCH_DIR/pgbouncer/ini" <<CONF
[databases]
* = host=127.0.0.1 port=$PGPORT
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $BENCH_DIR/pgbouncer/logins
pool_mode = transaction
default_pool_size = 5
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
CONF
    if ((EUID == 0)); then
        as=(setpriv --reuid=postgres --regid=postgres --init-groups --)
        chown -R postgres: "$BENCH_DIR/pgbouncer"
    fi
    "${as[@]}" pgbouncer "$BENCH_DIR/pgbouncer/ini" >"$BENCH_DIR/pgbouncer.log" 2>&1 &
    ends_with_us "$!"
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 "$!" 2>/dev/null || { cat "$BENCH_DIR/pgbouncer.log" >&2; die 'PgBouncer does not start'; }
        sleep 0.1
    done
}

start_redis() {
    needs redis-server
    local port; port=$(free_port)
    export REDIS_URL=redis://127.0.0.1:$port
    redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$BENCH_DIR" >"$BENCH_DIR/redis.log" 2>&1 &
    redis_pid=$!
    ends_with_us "$redis_pid"
}

start_sink() {
    needs nginx curl
    local port address; port=$(free_port)
    export SINK_URL=http://127.0.0.1:$port/
    mkdir -p "$BENCH_DIR/nginx" "$BENCH_DIR/nginx.d"
    chmod 777 "$BENCH_DIR/nginx"
    cat >"$BENCH_DIR/nginx.conf" <<CONF
daemon off; pid $BENCH_DIR/nginx/pid; error_log $BENCH_DIR/nginx.log warn; worker_processes 1;
events { worker_connections 8192; }
http {
    access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
    client_body_temp_path $BENCH_DIR/nginx/body; proxy_temp_path $BENCH_DIR/nginx/proxy;
    fastcgi_temp_path $BENCH_DIR/nginx/fastcgi; uwsgi_temp_path $BENCH_DIR/nginx/uwsgi;
    scgi_temp_path $BENCH_DIR/nginx/scgi;
    include $BENCH_DIR/nginx.d/*.conf;
    server {
$(for address in $(seq "${1:-1}"); do echo "        listen 127.0.0.$address:$port;"; done)
        location = /status { stub_status; }
        location / { return 200; }
    }
}
CONF
    nginx -c "$BENCH_DIR/nginx.conf" -e "$BENCH_DIR/nginx.log" &
    nginx_pid=$!
    ends_with_us "$nginx_pid"
    until curl -sf "${SINK_URL}status" >/dev/null; do
        kill -0 "$nginx_pid" 2>/dev/null || { cat "$BENCH_DIR/nginx.log" >&2; die 'nginx does not start'; }
        sleep 0.1
    done
}

# What the scripts in Node import, into bench/node_modules.
install_npm_peers() {
    needs node npm
    local name
    for name in graphile-worker pg undici bullmq ioredis pg-boss; do
        [[ -d bench/node_modules/$name ]] && continue
        npm install --prefix bench --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
            graphile-worker@0.17 pg@8 undici@7 bullmq@6 ioredis@5 pg-boss@10
        break
    done
}
