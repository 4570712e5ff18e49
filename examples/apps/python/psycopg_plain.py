"""psycopg 3 without an ORM.

    DATABASE_URL=postgres://my_app@db/app python psycopg_plain.py
"""

import os

import psycopg
from psycopg.types.json import Jsonb

from checks import Checks, Undo

# prepare_threshold=None: nothing is prepared, as PgBouncer in transaction mode needs it before its version 1.21. Not
# in autocommit mode, a transaction begins by itself; with it, `with connection.transaction()` begins one.
connection = psycopg.connect(os.environ["DATABASE_URL"], prepare_threshold=None, autocommit=True)


def order_by_notify(topic, dedup_key, undo):
    with connection.transaction():
        connection.execute("INSERT INTO orders (item) VALUES (%s)", [topic])
        # A str would do as well as Jsonb: what has no type is text to notify(), and text is welcome.
        [id] = connection.execute(
            "SELECT outboxd.notify(%s, %s, %s, dedup_key => %s)",
            [topic, "device-1", Jsonb({"text": "Thank you"}), dedup_key],
        ).fetchone()
        if undo:
            raise Undo
    return id


def order_by_insert(topic, dedup_key, undo):
    with connection.transaction():
        connection.execute("INSERT INTO orders (item) VALUES (%s)", [topic])
        row = connection.execute(
            """INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES (%s, %s, %s, %s)
               ON CONFLICT DO NOTHING RETURNING id""",
            [topic, "device-1", Jsonb({"text": "Thank you"}), dedup_key],
        ).fetchone()
        if undo:
            raise Undo
    # No row: the key is taken. DO NOTHING names no columns: the role may not read dedup_key.
    return row and row[0]


checks = Checks("psycopg")
checks.prove("notify", order_by_notify)
checks.prove("insert", order_by_insert)
checks.end()
