// ROWS notifications pass while somebody holds something open, and are timed until they are SENT: the first tenth
// beside the last. Written in chunks as fast as they are delivered.
//
//   node held.mjs snapshot|transaction|nothing ROWS     with DATABASE_URL and HTTP_PORT, the instance's
import { setTimeout as sleep } from "node:timers/promises";
import { counters } from "../metrics.mjs";
import { connect } from "../postgres.mjs";
import { assertMoves } from "../progress.mjs";

const [what, rowsText] = process.argv.slice(2);
const rows = Number(rowsText);
const EDGE = Math.ceil(rows / 10);
const CHUNK = 1000;
const OUTSTANDING_MAX = 5000;
const RATIO_MAX = 1.5;
const POLL_MS = 20;

const notify = (count) =>
    `SELECT count(outboxd.notify('bulk', 'device-' || n, '{"text": "Your order has been paid."}'))
       FROM generate_series(1, ${count}) n`;

/** Takes hold of what is left open. */
async function hold(client) {
    switch (what) {
        case "snapshot":
            await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
            await client.query("SELECT count(*) FROM pg_class");
            return "a held snapshot";
        case "transaction":
            await client.query("BEGIN");
            await client.query(notify(1));
            return "an app transaction left open after notify()";
        default:
            return "nothing held";
    }
}

const sent = async () => {
    const sums = await counters(process.env.HTTP_PORT);
    if (sums.outboxd_published_total === undefined) throw new Error("/metrics has no counters of notifications");
    return sums.outboxd_sent_total ?? 0;
};

/** When 1, 2, … chunks were SENT, in ms: [[sent, at], …], from the first row written to the last one SENT. */
async function pass(writer, count) {
    const before = await sent().catch(() => 0);
    const seen = [[0, performance.now()]];
    let [written, progress] = [0, performance.now()];
    while (seen.at(-1)[0] < count) {
        while (written < count && written - seen.at(-1)[0] <= OUTSTANDING_MAX - CHUNK) {
            const chunk = Math.min(CHUNK, count - written);
            await writer.query(notify(chunk));
            written += chunk;
        }
        await sleep(POLL_MS);
        const now = (await sent()) - before;
        if (now > seen.at(-1)[0]) {
            progress = performance.now();
            seen.push([now, progress]);
        }
        assertMoves({ name: "outboxd" }, progress, `${now} of ${count} SENT`);
    }
    return seen;
}

/** When `count` were SENT, between two polls in proportion. */
function reached(seen, count) {
    const after = seen.findIndex(([n]) => n >= count);
    const [[n0, t0], [n1, t1]] = [seen[Math.max(after - 1, 0)], seen[after]];
    return n1 === n0 ? t1 : t0 + ((t1 - t0) * (count - n0)) / (n1 - n0);
}

const [writer, holder] = [await connect(process.env.DATABASE_URL), await connect(process.env.DATABASE_URL)];
// Connections, plans and caches are made before the clock runs.
await pass(writer, CHUNK * 2);
const name = await hold(holder);
const seen = await pass(writer, rows);
const first = (reached(seen, EDGE) - seen[0][1]) / 1000;
const last = (seen.at(-1)[1] - reached(seen, rows - EDGE)) / 1000;
const { rows: [{ dead }] } = await writer.query(
    `SELECT pg_stat_get_dead_tuples('outboxd.outbox'::regclass)::int AS dead`,
);
const number = (n) => n.toLocaleString("en-GB");
const ratio = last / first;
const verdict = ratio <= RATIO_MAX ? "holds" : "DOES NOT HOLD";
console.log(`${number(rows)} under ${name}, ${number(dead)} dead rows in outbox at the end:`);
const [edge, early, late] = [number(EDGE), first.toFixed(2), last.toFixed(2)];
console.log(`    the first ${edge} SENT in ${early} s, the last ${edge} in ${late} s`);
console.log(`    ratio ${ratio.toFixed(2)} (at most ${RATIO_MAX}): ${verdict}`);

if (what === "transaction") {
    const before = await sent();
    const committed = performance.now();
    await holder.query("COMMIT");
    while ((await sent()) === before) {
        await sleep(POLL_MS);
        assertMoves({ name: "outboxd" }, committed, "the transaction that was open has committed");
    }
    const took = (performance.now() - committed) / 1000;
    console.log(`    the one left open was SENT ${took.toFixed(2)} s after its COMMIT`);
}
await holder.end();
await writer.end();
