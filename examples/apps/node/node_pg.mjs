// node-pg.
//
//     DATABASE_URL=postgres://my_app@db/app node node_pg.mjs
import pg from 'pg';
import { Checks, Undo } from './checks.mjs';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

// Every statement of a transaction goes through the one client it began on, never through pool.query().
async function transaction(work) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

// node-pg sends parameters as text without a type, an object as JSON: notify() and a jsonb column take that. A payload that
// is an array at its top is the exception, it would be sent as a Postgres array: JSON.stringify() it. Ids are bigint,
// which node-pg gives as strings. A query with a `name` is prepared, which PgBouncer in transaction mode does not bear
// before its version 1.21: give none.
const payload = { text: 'Thank you' };

const orderByNotify = (topic, dedupKey, undo) =>
  transaction(async (client) => {
    await client.query('INSERT INTO orders (item) VALUES ($1)', [topic]);
    const { rows: [{ id }] } = await client.query(
      'SELECT outboxd.notify($1, $2, $3, dedup_key => $4) AS id',
      [topic, 'device-1', payload, dedupKey],
    );
    if (undo) throw new Undo();
    return id;
  });

const orderByInsert = (topic, dedupKey, undo) =>
  transaction(async (client) => {
    await client.query('INSERT INTO orders (item) VALUES ($1)', [topic]);
    const { rows: [row] } = await client.query(
      `INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES ($1, $2, $3, $4)
       ON CONFLICT DO NOTHING RETURNING id`,
      [topic, 'device-1', payload, dedupKey],
    );
    if (undo) throw new Undo();
    // No row: the key is taken. DO NOTHING names no columns: the role may not read dedup_key.
    return row?.id ?? null;
  });

const checks = new Checks('node-pg');
await checks.prove('notify', orderByNotify);
await checks.prove('insert', orderByInsert);
checks.end();
await pool.end();
