"""SQLAlchemy 2 with asyncpg.

    DATABASE_URL=postgres://my_app@db/app python sqlalchemy_asyncio.py
"""

import asyncio
import os
import uuid

from sqlalchemy import BigInteger, Identity, make_url, text
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from checks import Checks, Undo

# For PgBouncer in transaction mode: neither asyncpg nor SQLAlchemy keeps statements, and what is prepared for one
# execution has a name that no other session of the pool has. Without PgBouncer leave it out.
engine = create_async_engine(
    make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg"),
    connect_args={
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"app-{uuid.uuid4()}",
    },
)


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


async def order_by_notify(topic, dedup_key, undo):
    async with AsyncSession(engine) as session, session.begin():
        session.add(Order(item=topic))
        # asyncpg asks the server for the types; a payload of unsaid type is text there, so give it as text.
        id = await session.scalar(
            text("SELECT outboxd.notify(:topic, :recipient, :payload, dedup_key => :dedup_key)"),
            {"topic": topic, "recipient": "device-1", "payload": '{"text": "Thank you"}', "dedup_key": dedup_key},
        )
        if undo:
            raise Undo
    return id


async def order_by_insert(topic, dedup_key, undo):
    async with AsyncSession(engine) as session, session.begin():
        session.add(Order(item=topic))
        if dedup_key is None:
            notification = Notification(topic=topic, recipient="device-1", payload={"text": "Thank you"})
            session.add(notification)
            await session.flush()  # INSERT … RETURNING id
            id = notification.id
        else:
            # No row, so None, if the key is taken. No index_elements: the role may not read dedup_key.
            values = {"topic": topic, "recipient": "device-1", "payload": {"text": "Thank you"}, "dedup_key": dedup_key}
            statement = insert(Notification).values(values).on_conflict_do_nothing().returning(Notification.id)
            id = await session.scalar(statement)
        if undo:
            raise Undo
    return id


checks = Checks("asyncpg")
with asyncio.Runner() as runner:
    checks.prove("notify", lambda *order: runner.run(order_by_notify(*order)))
    checks.prove("insert", lambda *order: runner.run(order_by_insert(*order)))
checks.end()
