"""What each example proves, as a login that has only the role outboxd_app and its own table `orders`."""

import os
import sys
import uuid

import psycopg


class Undo(Exception):
    """Raised inside a transaction to roll it back."""


class Checks:
    def __init__(self, tool):
        self.topic = f"{tool}-{uuid.uuid4().hex[:8]}"
        self.failures = 0

    def prove(self, way, order):
        """`order(topic, dedup_key, undo)` writes an order and its notification in one transaction and returns the
        notification's id, or None if its dedup_key was taken. With `undo` it raises Undo before the commit."""

        def topic(check):
            return f"{self.topic}.{way}.{check}"

        first = order(topic("commit"), None, False)
        self.check(way, "commit", self.written(topic("commit"))[0], (1, 1))
        self.check(way, "returning", [first], self.written(topic("commit"))[1])
        # A running instance may be further already.
        status, begins = self.ask("SELECT outboxd.status(%s)", first)[0][0], {"notify": "QUEUED", "insert": "PENDING"}[way]
        self.check(way, "status", begins if status in ("QUEUED", "PROCESSING", "SENT", "FAILED") else status, begins)
        try:
            order(topic("rollback"), None, True)
        except Undo:
            pass
        self.check(way, "rollback", self.written(topic("rollback"))[0], (0, 0))
        ids = [order(topic("dedup"), "order-4711", False) for _ in range(2)]
        counts, [kept] = self.written(topic("dedup"))
        # Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
        self.check(way, "dedup", (counts, ids), ((2, 1), [kept, kept if way == "notify" else None]))

    def written(self, topic):
        """((orders, notifications), the notifications' ids), as another session of the same login sees them."""
        ids = [id for (id,) in self.ask("SELECT id FROM outboxd.notification_log WHERE topic = %s ORDER BY id", topic)]
        [[orders]] = self.ask("SELECT count(*) FROM orders WHERE item = %s", topic)
        return (orders, len(ids)), ids

    def ask(self, sql, *parameters):
        with psycopg.connect(os.environ["DATABASE_URL"], prepare_threshold=None) as connection:
            return connection.execute(sql, parameters).fetchall()

    def check(self, way, name, found, wanted):
        good = found == wanted
        self.failures += not good
        print(f"ok {way} {name}" if good else f"not ok {way} {name}: {found!r} instead of {wanted!r}", flush=True)

    def end(self):
        sys.exit(1 if self.failures else 0)
