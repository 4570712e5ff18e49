#!/usr/bin/env bash
# psql and shell scripts.
#
#     DATABASE_URL=postgres://my_app@db/app ./psql.sh
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# psql commits each statement by itself unless told otherwise: BEGIN … COMMIT in the script, or -1 for the whole of it.
# ON_ERROR_STOP, so that nothing is committed after an error. Values go in by -v and are quoted by :'name', never pasted.
order_by_notify() {
    app -v topic="$1" -v dedup_key="$2" -v end="$3" <<'SQL'
BEGIN;
INSERT INTO orders (item) VALUES (:'topic');
SELECT outboxd.notify(:'topic', 'device-1', '{"text": "Thank you"}', dedup_key => nullif(:'dedup_key', ''));
:end;
SQL
}

order_by_insert() {
    app -v topic="$1" -v dedup_key="$2" -v end="$3" <<'SQL'
BEGIN;
INSERT INTO orders (item) VALUES (:'topic');
-- No row if the key is taken. DO NOTHING names no columns: the role may not read dedup_key.
INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key)
VALUES (:'topic', 'device-1', '{"text": "Thank you"}', nullif(:'dedup_key', '')) ON CONFLICT DO NOTHING RETURNING id;
:end;
SQL
}

prove notify order_by_notify orders QUEUED
prove insert order_by_insert orders PENDING
exit "$failures"
