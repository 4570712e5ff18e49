// Drizzle on node-pg.
//
//     DATABASE_URL=postgres://my_app@db/app node drizzle.mjs
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, jsonb, pgSchema, pgTable, text } from 'drizzle-orm/pg-core';
import { Checks, Undo } from './checks.mjs';

const db = drizzle(process.env.DATABASE_URL);

const orders = pgTable('orders', {
  id: bigint({ mode: 'bigint' }).primaryKey().generatedAlwaysAsIdentity(),
  item: text().notNull(),
});
// The columns the app writes, and `id`: Drizzle writes DEFAULT for those without a value, and status, created_at … are not
// the app's to write.
const notifications = pgSchema('outboxd').table('notification_log', {
  id: bigint({ mode: 'bigint' }).primaryKey().generatedAlwaysAsIdentity(),
  topic: text().notNull(),
  recipient: text().notNull(),
  payload: jsonb().notNull(),
  dedupKey: text('dedup_key'),
});

// Every statement says `tx`: one that says `db` takes another connection and is not part of the transaction.
const orderByNotify = (topic, dedupKey, undo) =>
  db.transaction(async (tx) => {
    await tx.insert(orders).values({ item: topic });
    const payload = JSON.stringify({ text: 'Thank you' });
    const { rows: [{ id }] } = await tx.execute(
      sql`SELECT outboxd.notify(${topic}, ${'device-1'}, ${payload}, dedup_key => ${dedupKey}) AS id`,
    );
    if (undo) throw new Undo();
    return id;
  });

const orderByInsert = (topic, dedupKey, undo) =>
  db.transaction(async (tx) => {
    await tx.insert(orders).values({ item: topic });
    // No row if the key is taken. No target: the role may not read dedup_key. returning() without columns asks for all of
    // them and is refused.
    const [row] = await tx
      .insert(notifications)
      .values({ topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedupKey })
      .onConflictDoNothing()
      .returning({ id: notifications.id });
    if (undo) throw new Undo();
    return row ? String(row.id) : null;
  });

const checks = new Checks('drizzle');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await db.$client.end();
