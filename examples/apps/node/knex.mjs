// Knex on node-pg.
//
//     DATABASE_URL=postgres://my_app@db/app node knex.mjs
import Knex from 'knex';
import { Checks, Undo } from './checks.mjs';

const knex = Knex({ client: 'pg', connection: process.env.DATABASE_URL });

// Every statement says `trx`: one that says `knex` takes another connection and is not part of the transaction.
const orderByNotify = (topic, dedupKey, undo) =>
  knex.transaction(async (trx) => {
    await trx('orders').insert({ item: topic });
    const { rows: [{ id }] } = await trx.raw('SELECT outboxd.notify(?, ?, ?, dedup_key => ?) AS id', [
      topic, 'device-1', { text: 'Thank you' }, dedupKey,
    ]);
    if (undo) throw new Undo();
    return id;
  });

const orderByInsert = (topic, dedupKey, undo) =>
  knex.transaction(async (trx) => {
    await trx('orders').insert({ item: topic });
    // No row if the key is taken. onConflict() names no columns: the role may not read dedup_key. returning('*') is
    // refused for the same reason.
    const [row] = await trx('notification_log')
      .withSchema('outboxd')
      .insert({ topic, recipient: 'device-1', payload: { text: 'Thank you' }, dedup_key: dedupKey })
      .onConflict()
      .ignore()
      .returning('id');
    if (undo) throw new Undo();
    return row?.id ?? null;
  });

const checks = new Checks('knex');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await knex.destroy();
