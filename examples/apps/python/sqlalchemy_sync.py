"""SQLAlchemy 2 with psycopg.

    DATABASE_URL=postgres://my_app@db/app python sqlalchemy_sync.py
"""

import os

from sqlalchemy import BigInteger, Identity, Text, create_engine, func, make_url, select
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from checks import Checks, Undo

# prepare_threshold=None: nothing is prepared, as PgBouncer in transaction mode needs it before its version 1.21.
url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
engine = create_engine(url, connect_args={"prepare_threshold": None})


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    item: Mapped[str]


class Notification(Base):
    """The columns the app writes, and no others: created_at, status … are not the app's to write."""

    __tablename__ = "notification_log"
    __table_args__ = {"schema": "outboxd"}
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    topic: Mapped[str]
    recipient: Mapped[str]
    payload: Mapped[dict] = mapped_column(JSONB)
    dedup_key: Mapped[str | None]


def order_by_notify(topic, dedup_key, undo):
    with Session(engine) as session, session.begin():
        session.add(Order(item=topic))
        # The driver sends the text without a type, and notify() takes text. Further arguments are given by position
        # (send_at, dedup_key, …): func has no named ones. NULL means the default.
        notify = func.outboxd.notify(topic, "device-1", '{"text": "Thank you"}', None, dedup_key, type_=BigInteger)
        id = session.scalar(select(notify))
        if undo:
            raise Undo
    return id


def order_by_insert(topic, dedup_key, undo):
    with Session(engine) as session, session.begin():
        session.add(Order(item=topic))
        if dedup_key is None:
            notification = Notification(topic=topic, recipient="device-1", payload={"text": "Thank you"})
            session.add(notification)
            session.flush()  # INSERT … RETURNING id
            id = notification.id
        else:
            # No row, so None, if the key is taken. No index_elements: the role may not read dedup_key.
            values = {"topic": topic, "recipient": "device-1", "payload": {"text": "Thank you"}, "dedup_key": dedup_key}
            statement = insert(Notification).values(values).on_conflict_do_nothing().returning(Notification.id)
            id = session.scalar(statement)
        if undo:
            raise Undo
    return id


checks = Checks("sqlalchemy")
checks.prove("notify", order_by_notify)
checks.prove("insert", order_by_insert)
checks.end()
