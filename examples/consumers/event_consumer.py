"""A consuming service in Python: reads the events of a topic from their Redis stream and handles each once.

    pip install -r requirements.txt
    DATABASE_URL=postgres://… REDIS_URL=redis://… python event_consumer.py TOPIC

It writes to a table of the service's own:

    CREATE TABLE IF NOT EXISTS invoices (number bigserial PRIMARY KEY, consumer text, key text, payload jsonb);

One process a group at a time, so that events of one key are handled in order. Whatever goes wrong ends it; started
again, it goes on with what it had not acknowledged.
"""

import os
import sys

import psycopg
import redis

CONSUMER = os.environ.get("CONSUMER", "billing")
PREFIX = os.environ.get("OUTBOXD_QUEUE_PREFIX", "outboxd")


def handle(database, event):
    """One transaction: seen before or not, the work, and the response that a repeat will get."""
    with database.transaction():
        first, response = database.execute(
            "SELECT first, response FROM outboxd.receive(%s, %s)", (CONSUMER, event["id"])
        ).fetchone()
        if not first:
            return print(f"event {event['id']}: seen before, answered {response}", flush=True)
        database.execute(
            "INSERT INTO invoices (consumer, key, payload) VALUES (%s, %s, %s)",
            (CONSUMER, event["key"], event["payload"]),
        )
        database.execute("SELECT outboxd.respond(%s, %s, jsonb_build_object('invoiced', %s::text))",
                         (CONSUMER, event["id"], event["key"]))
        print(f"event {event['id']}: invoiced {event['key']}", flush=True)


def consume(database, streams, stream):
    # First what an earlier run was given and did not acknowledge, then what is new. The wait is shorter than the
    # connection's timeout.
    after = "0"
    while True:
        try:
            found = streams.xreadgroup(CONSUMER, "1", {stream: after}, count=100, block=2000)
        except redis.ResponseError as error:
            # Redis lost the group with the stream; outboxd appends what it lost again, so the group begins at 0.
            if not str(error).startswith(("NOGROUP", "UNBLOCKED")):
                raise
            make_group(streams, stream)
            continue
        entries = [entry for _, entries in found or [] for entry in entries]
        if not entries:
            after = ">"
        for entry, event in entries:
            if event:
                handle(database, event)
            streams.xack(stream, CONSUMER, entry)


def make_group(streams, stream):
    try:
        streams.xgroup_create(stream, CONSUMER, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def main():
    stream = f"{{{PREFIX}}}:v1:events:topic:{sys.argv[1]}"
    database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    streams = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True, protocol=2)
    make_group(streams, stream)
    consume(database, streams, stream)


main()
