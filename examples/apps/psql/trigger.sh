#!/usr/bin/env bash
# A trigger on the app's own table: see trigger.sql.
#
#     DATABASE_URL=postgres://my_app@db/app ./trigger.sh
set -uo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=checks.sh
. "$here/checks.sh"

pay_an_invoice() {
    app -v topic="$1" -v dedup_key="$2" -v end="$3" <<'SQL'
BEGIN;
INSERT INTO invoices (item, customer, dedup_key) VALUES (:'topic', 'device-1', nullif(:'dedup_key', '')) RETURNING id AS invoice \gset
UPDATE invoices SET paid = true WHERE id = :invoice RETURNING notification_id;
:end;
SQL
}

app -f "$here/trigger.sql" 2>/dev/null
prove notify pay_an_invoice invoices QUEUED
exit "$failures"
