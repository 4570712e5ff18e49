// A consuming service in Node: reads the events of a topic from their Redis stream and handles each once.
//
//     npm install
//     DATABASE_URL=postgres://… REDIS_URL=redis://… node event_consumer.mjs TOPIC
//
// It writes to a table of the service's own:
//
//     CREATE TABLE IF NOT EXISTS invoices (number bigserial PRIMARY KEY, consumer text, key text, payload jsonb);
//
// One process a group at a time, so that events of one key are handled in order. Whatever goes wrong ends it; started
// again, it goes on with what it had not acknowledged.

import pg from 'pg';
import { createClient } from 'redis';

const consumer = process.env.CONSUMER ?? 'billing';
const prefix = process.env.OUTBOXD_QUEUE_PREFIX ?? 'outboxd';

// One transaction: seen before or not, the work, and the response that a repeat will get.
async function handle(database, event) {
  await database.query('BEGIN');
  const receive = 'SELECT first, response FROM outboxd.receive($1, $2)';
  const { rows: [seen] } = await database.query(receive, [consumer, event.id]);
  if (seen.first) {
    const insert = 'INSERT INTO invoices (consumer, key, payload) VALUES ($1, $2, $3)';
    await database.query(insert, [consumer, event.key, event.payload]);
    const response = JSON.stringify({ invoiced: event.key });
    await database.query('SELECT outboxd.respond($1, $2, $3)', [consumer, event.id, response]);
  }
  await database.query('COMMIT');
  const said = seen.first ? `invoiced ${event.key}` : `seen before, answered ${JSON.stringify(seen.response)}`;
  console.log(`event ${event.id}: ${said}`);
}

async function consume(database, streams, stream) {
  // First what an earlier run was given and did not acknowledge, then what is new.
  let after = '0';
  for (;;) {
    let found;
    try {
      found = await streams.xReadGroup(consumer, '1', { key: stream, id: after }, { COUNT: 100, BLOCK: 5000 });
    } catch (error) {
      // Redis lost the group with the stream; outboxd appends what it lost again, so the group begins at 0.
      if (!/^(NOGROUP|UNBLOCKED)/.test(error.message)) throw error;
      await makeGroup(streams, stream);
      continue;
    }
    const entries = found?.[0]?.messages ?? [];
    if (entries.length === 0) after = '>';
    for (const { id, message } of entries) {
      if (message?.id) await handle(database, message);
      await streams.xAck(stream, consumer, id);
    }
  }
}

async function makeGroup(streams, stream) {
  try {
    await streams.xGroupCreate(stream, consumer, '0', { MKSTREAM: true });
  } catch (error) {
    if (!error.message.startsWith('BUSYGROUP')) throw error;
  }
}

const stream = `{${prefix}}:v1:events:topic:${process.argv[2]}`;
const database = new pg.Client({ connectionString: process.env.DATABASE_URL });
await database.connect();
const streams = createClient({ url: process.env.REDIS_URL, RESP: 2 });
streams.on('error', (error) => { throw error; });
await streams.connect();
await makeGroup(streams, stream);
await consume(database, streams, stream);
