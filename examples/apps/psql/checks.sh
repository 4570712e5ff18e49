# What each example here proves, as a login that has only the role outboxd_app and its own tables. To be sourced.
# shellcheck shell=bash
failures=0

app() { psql -XAtq -v ON_ERROR_STOP=1 "$DATABASE_URL" "$@"; }
ask() { app -v value="$2" <<<"$1"; }

# prove WAY ORDER TABLE STATUS: `ORDER topic dedup_key end` writes a row of TABLE and a notification in one transaction,
# which ends as told, and prints the notification's id, or nothing if the key was taken.
prove() {
    local way=$1 order=$2 table=$3 status=$4 topic first found one two
    topic=$way-$(tr -d - </proc/sys/kernel/random/uuid)
    first=$("$order" "$topic.commit" '' COMMIT)
    check "$way" commit "$(written "$table" "$topic.commit")" "1 $first"
    check "$way" returning "$((first > 0))" 1
    found=$(ask "SELECT outboxd.status(:'value'::bigint)" "$first")
    # A running instance may be further already.
    [[ $found =~ ^(QUEUED|PROCESSING|SENT|FAILED)$ ]] && found=$status
    check "$way" status "$found" "$status"
    "$order" "$topic.rollback" '' ROLLBACK >/dev/null
    check "$way" rollback "$(written "$table" "$topic.rollback")" '0 '
    one=$("$order" "$topic.dedup" order-4711 COMMIT)
    two=$("$order" "$topic.dedup" order-4711 COMMIT)
    # Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
    [[ $way == insert ]] && two+=$one
    check "$way" dedup "$(written "$table" "$topic.dedup") $two" "2 $one $one"
}

# The rows of the table and the notifications' ids.
written() {
    ask "SELECT (SELECT count(*) FROM $1 WHERE item = :'value')
             || ' ' || coalesce((SELECT string_agg(id::text, ',') FROM outboxd.notification_log WHERE topic = :'value'), '')" "$2"
}

check() {
    if [[ $3 == "$4" ]]; then
        echo "ok $1 $2"
    else
        echo "not ok $1 $2: '$3' instead of '$4'"
        failures=1
    fi
}
