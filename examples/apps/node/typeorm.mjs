// TypeORM on node-pg. EntitySchema is the same as @Entity and @Column, without a compiler.
//
//     DATABASE_URL=postgres://my_app@db/app node typeorm.mjs
import 'reflect-metadata';
import { DataSource, EntitySchema } from 'typeorm';
import { Checks, Undo } from './checks.mjs';

const id = { type: 'bigint', primary: true, generated: 'identity', generatedIdentity: 'ALWAYS' };
const Order = new EntitySchema({
  name: 'Order',
  tableName: 'orders',
  columns: { id, item: { type: 'text' } },
});
// The columns the app writes, and `id`: TypeORM writes DEFAULT for those without a value, and status, created_at … are
// not the app's to write. Whoever maps them says insert: false.
const Notification = new EntitySchema({
  name: 'Notification',
  schema: 'outboxd',
  tableName: 'notification_log',
  columns: {
    id,
    topic: { type: 'text' },
    recipient: { type: 'text' },
    payload: { type: 'jsonb' },
    dedupKey: { type: 'text', name: 'dedup_key', nullable: true },
    status: { type: 'text', insert: false, update: false },
  },
});

// synchronize: false (the default) keeps TypeORM from changing tables.
const source = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities: [Order, Notification] });
await source.initialize();

// Every call goes through `manager`: a repository of the source takes another connection.
const orderByNotify = (topic, dedupKey, undo) =>
  source.transaction(async (manager) => {
    await manager.save(Order, { item: topic });
    const [{ id }] = await manager.query('SELECT outboxd.notify($1, $2, $3, dedup_key => $4) AS id', [
      topic, 'device-1', { text: 'Thank you' }, dedupKey,
    ]);
    if (undo) throw new Undo();
    return id;
  });

const orderByInsert = (topic, dedupKey, undo) =>
  source.transaction(async (manager) => {
    await manager.save(Order, { item: topic });
    const values = { topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedupKey };
    let id;
    if (dedupKey === null) {
      ({ id } = await manager.save(Notification, values)); // INSERT … RETURNING "id"
    } else {
      // orIgnore(): ON CONFLICT DO NOTHING; no row if the key is taken.
      const insert = manager.createQueryBuilder().insert().into(Notification).values(values).orIgnore().returning('id');
      id = (await insert.execute()).raw[0]?.id ?? null;
    }
    if (undo) throw new Undo();
    return id;
  });

const checks = new Checks('typeorm');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await source.destroy();
