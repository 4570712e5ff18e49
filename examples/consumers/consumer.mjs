// Receives webhooks of outboxd: verifies the signature, and handles each message once.
//
//     npm install standardwebhooks pg
//     DATABASE_URL=postgres://warehouse@db/warehouse WEBHOOK_SECRET=whsec_… PORT=8000 node consumer.mjs
//
// outboxd delivers at least once: a repeat carries the same `webhook-id`. The id is kept in the transaction that does the
// work, so both are there or neither. (Where the consumer shares the database, outboxd.receive() and respond() do this.)
import { createServer } from 'node:http';
import pg from 'pg';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const webhook = new Webhook(process.env.WEBHOOK_SECRET);
// For trying: the first message is handled, but its sender never hears of it.
let answersToLose = Number(process.env.LOSE_ANSWERS ?? 0);

await pool.query('CREATE TABLE IF NOT EXISTS handled (webhook_id text PRIMARY KEY, at timestamptz DEFAULT now())');
await pool.query('CREATE TABLE IF NOT EXISTS shipments (recipient text, payload jsonb)');

/** False if the message was handled before. Of two at the same time the second waits for the first. */
async function handle(webhookId, message) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const keep = 'INSERT INTO handled (webhook_id) VALUES ($1) ON CONFLICT DO NOTHING';
    const first = (await client.query(keep, [webhookId])).rowCount === 1;
    if (first) {
      const work = 'INSERT INTO shipments (recipient, payload) VALUES ($1, $2)';
      await client.query(work, [message.recipient, JSON.stringify(message.payload)]);
    }
    await client.query('COMMIT');
    return first;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

const server = createServer(async (request, response) => {
  try {
    // The signature is of the bytes: verify before parsing, so no body parser in front. A timestamp more than 5 minutes
    // off is refused too.
    const body = Buffer.concat(await request.toArray());
    const message = webhook.verify(body, request.headers);
    const first = await handle(request.headers['webhook-id'], message);
    console.log(first ? 'handled' : 'repeated', request.headers['webhook-id']);
    if (answersToLose-- > 0) return request.socket.destroy();
    response.writeHead(204).end();
  } catch (error) {
    const refused = error instanceof WebhookVerificationError;
    console.log(refused ? 'refused' : 'failed', error.message);
    // outboxd tries again after a 500.
    response.writeHead(refused ? 401 : 500).end();
  }
});
server.listen(Number(process.env.PORT ?? 8000), '127.0.0.1', () => console.log('listening', server.address().port));
