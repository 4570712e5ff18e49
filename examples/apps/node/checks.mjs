// What each example proves, as a login that has only the role outboxd_app and its own table `orders`.
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import pg from 'pg';

/** Thrown inside a transaction to roll it back. */
export class Undo extends Error {}

export class Checks {
  #failures = 0;

  constructor(tool) {
    this.topic = `${tool}-${randomUUID().slice(0, 8)}`;
  }

  /**
   * `order(topic, dedupKey, undo)` writes an order and its notification in one transaction and gives the notification's
   * id as a string, or null if its key was taken. With `undo` it throws Undo before the commit.
   */
  async prove(way, order) {
    const topic = (check) => `${this.topic}.${way}.${check}`;
    const first = await order(topic('commit'), null, false);
    const committed = await this.#written(topic('commit'));
    this.#check(way, 'commit', committed.counts, [1, 1]);
    this.#check(way, 'returning', [first], committed.ids);
    const [{ status }] = await this.#ask('SELECT outboxd.status($1) AS status', first);
    const begins = { notify: 'QUEUED', insert: 'PENDING' }[way];
    // A running instance may be further already.
    const isFurther = ['QUEUED', 'PROCESSING', 'SENT', 'FAILED'].includes(status);
    this.#check(way, 'status', isFurther ? begins : status, begins);
    await order(topic('rollback'), null, true).catch((error) => {
      if (!(error instanceof Undo)) throw error;
    });
    this.#check(way, 'rollback', (await this.#written(topic('rollback'))).counts, [0, 0]);
    const ids = [await order(topic('dedup'), 'order-4711', false), await order(topic('dedup'), 'order-4711', false)];
    const { counts, ids: [kept] } = await this.#written(topic('dedup'));
    // Both orders are committed: a key that is taken ends no transaction. notify() gives the first id again.
    this.#check(way, 'dedup', [counts, ids], [[2, 1], [kept, way === 'notify' ? kept : null]]);
  }

  /** [orders, notifications] and the notifications' ids, as another session of the same login sees them. */
  async #written(topic) {
    const ids = await this.#ask('SELECT id FROM outboxd.notification_log WHERE topic = $1 ORDER BY id', topic);
    const [{ orders }] = await this.#ask('SELECT count(*)::int AS orders FROM orders WHERE item = $1', topic);
    return { counts: [orders, ids.length], ids: ids.map((row) => row.id) };
  }

  async #ask(sql, ...parameters) {
    const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
    await client.connect();
    try {
      return (await client.query(sql, parameters)).rows;
    } finally {
      await client.end();
    }
  }

  #check(way, name, found, wanted) {
    const good = isDeepStrictEqual(found, wanted);
    this.#failures += good ? 0 : 1;
    const why = `${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`;
    console.log(good ? `ok ${way} ${name}` : `not ok ${way} ${name}: ${why}`);
  }

  end() {
    process.exitCode = this.#failures ? 1 : 0;
  }
}
