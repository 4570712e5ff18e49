"""Django 5 with psycopg 3: settings, models and use in one file.

    DATABASE_URL=postgres://my_app@db/app python django_orm.py
"""

import os
from urllib.parse import urlsplit

import django
from django.conf import settings

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": url.hostname,
            "PORT": url.port,
            "USER": url.username,
            "PASSWORD": url.password or "",
            "NAME": url.path.lstrip("/"),
            # For PgBouncer in transaction mode. Django prepares nothing unless OPTIONS say prepare_threshold.
            "DISABLE_SERVER_SIDE_CURSORS": True,
        }
    },
    USE_TZ=True,
)
django.setup()

from django.db import IntegrityError, connection, models, transaction  # noqa: E402

from checks import Checks, Undo  # noqa: E402


class Order(models.Model):
    id = models.BigAutoField(primary_key=True)
    item = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"
        managed = False


class Notification(models.Model):
    """The columns the app writes, and no others: created_at, status … are not the app's to write."""

    id = models.BigAutoField(primary_key=True)
    topic = models.TextField()
    recipient = models.TextField()
    payload = models.JSONField()
    dedup_key = models.TextField(null=True)

    class Meta:
        app_label = "shop"
        # With its quotes, Django takes the name as it is.
        db_table = '"outboxd"."notification_log"'
        managed = False


# Without atomic() Django commits each statement by itself, and the notification could go without the order.
@transaction.atomic
def order_by_notify(topic, dedup_key, undo):
    Order.objects.create(item=topic)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT outboxd.notify(%s, %s, %s, dedup_key => %s)",
            [topic, "device-1", '{"text": "Thank you"}', dedup_key],
        )
        [id] = cursor.fetchone()
    if undo:
        raise Undo
    return id


@transaction.atomic
def order_by_insert(topic, dedup_key, undo):
    Order.objects.create(item=topic)
    try:
        # A savepoint, so that a key that is taken does not end the transaction. bulk_create(…, ignore_conflicts=True)
        # needs none, but tells neither ids nor whether the row was written.
        with transaction.atomic():
            id = Notification.objects.create(
                topic=topic, recipient="device-1", payload={"text": "Thank you"}, dedup_key=dedup_key
            ).id
    except IntegrityError as error:
        if error.__cause__.sqlstate != "23505":
            raise
        id = None
    if undo:
        raise Undo
    return id


checks = Checks("django")
checks.prove("notify", order_by_notify)
checks.prove("insert", order_by_insert)
checks.end()
