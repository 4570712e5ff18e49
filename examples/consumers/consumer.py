"""Receives webhooks of outboxd: verifies the signature, and handles each message once.

    pip install standardwebhooks 'psycopg[binary]'
    DATABASE_URL=postgres://warehouse@db/warehouse WEBHOOK_SECRET=whsec_… PORT=8000 python consumer.py

outboxd delivers at least once: a repeat carries the same `webhook-id`. The id is kept in the transaction that does the
work, so both are there or neither. (Where the consumer shares the database, outboxd.receive() and respond() do this.)
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from psycopg.types.json import Jsonb
from standardwebhooks import Webhook, WebhookVerificationError

DATABASE_URL = os.environ["DATABASE_URL"]
webhook = Webhook(os.environ["WEBHOOK_SECRET"])
# For trying: the first message is handled, but its sender never hears of it.
answers_to_lose = int(os.environ.get("LOSE_ANSWERS", "0"))

with psycopg.connect(DATABASE_URL) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS handled (webhook_id text PRIMARY KEY, at timestamptz DEFAULT now())")
    connection.execute("CREATE TABLE IF NOT EXISTS shipments (recipient text, payload jsonb)")


def handle(webhook_id, message):
    """False if the message was handled before. Of two at the same time the second waits for the first."""
    with psycopg.connect(DATABASE_URL) as connection:
        keep = "INSERT INTO handled (webhook_id) VALUES (%s) ON CONFLICT DO NOTHING"
        if connection.execute(keep, [webhook_id]).rowcount == 0:
            return False
        work = "INSERT INTO shipments (recipient, payload) VALUES (%s, %s)"
        connection.execute(work, [message["recipient"], Jsonb(message["payload"])])
        return True


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        # The signature is of the bytes: verify before parsing. A timestamp more than 5 minutes off is refused too.
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            message = webhook.verify(body, {name.lower(): value for name, value in self.headers.items()})
        except (WebhookVerificationError, ValueError) as error:  # ValueError: a header or a body out of form
            print("refused", error, flush=True)
            return self.answer(401)
        # An exception here closes the connection without an answer, and outboxd tries again.
        first = handle(self.headers["webhook-id"], message)
        print("handled" if first else "repeated", self.headers["webhook-id"], flush=True)
        global answers_to_lose
        if answers_to_lose > 0:
            answers_to_lose -= 1
            self.close_connection = True
            return
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Receiver)
print("listening", server.server_port, flush=True)
server.serve_forever()
