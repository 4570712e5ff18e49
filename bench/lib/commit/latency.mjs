// From COMMIT returned to the message in the Redis stream: the writers and the reader of the stream are one process, so
// one clock serves both ends. With DATABASE_URL and REDIS_URL:
//
//   node latency.mjs RATE SECONDS     at a steady rate; the first second is not counted
//   node latency.mjs single COUNT     single commits up to 600 ms apart, before and after the relay falls asleep
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { connect } from "../postgres.mjs";
import { percentile } from "../statistics.mjs";

const isSingle = process.argv[2] === "single";
const [rate, seconds] = process.argv.slice(2).map(Number);
const SESSIONS = rate > 500 ? 16 : 4;
const STALL_MS = 30_000;
const PAUSE_MS_MAX = 600;
const STREAM = "{outboxd}:v1:stream";
const arrived = new Map();
const committed = new Map();

/** Reads the stream as it grows, and deletes what was read so that it never fills. */
function follow() {
    const [reader, janitor] = [new Redis(process.env.REDIS_URL), new Redis(process.env.REDIS_URL)];
    let isOver = false;
    const read = async () => {
        for (let last = "$"; ; ) {
            const reply = await reader.xread("BLOCK", 0, "STREAMS", STREAM, last);
            const at = performance.now();
            const entries = reply[0][1];
            // An entry is ["ms-seq", ["m", "id:epoch:…"]].
            for (const [, [, element]] of entries) {
                const id = element.split(":", 1)[0];
                if (!arrived.has(id)) arrived.set(id, at);
            }
            last = entries.at(-1)[0];
            janitor.xdel(STREAM, ...entries.map(([entry]) => entry));
        }
    };
    read().catch((error) => {
        // Disconnecting ends the last read.
        if (!isOver) throw error;
    });
    return () => {
        isOver = true;
        reader.disconnect();
        janitor.disconnect();
    };
}

const NOTIFY = `SELECT outboxd.notify('orders', 'device-1', '{"text": "Your order has been paid."}') AS id`;
const notify = async (client) => String((await client.query({ name: "add", text: NOTIFY })).rows[0].id);

async function writeSingly(count) {
    const client = await connect(process.env.DATABASE_URL);
    // The first is slow for the writer's sake, which plans it.
    for (let n = 0; n <= count; n += 1) {
        await sleep(Math.random() * PAUSE_MS_MAX);
        const id = await notify(client);
        if (n > 0) committed.set(id, performance.now());
    }
    await client.end();
}

async function writeSteadily() {
    const began = performance.now();
    const count = rate * (seconds + 1);
    const write = async (first) => {
        const client = await connect(process.env.DATABASE_URL);
        for (let n = first; n < count; n += SESSIONS) {
            const wait = began + (n * 1000) / rate - performance.now();
            if (wait > 0) await sleep(wait);
            const id = await notify(client);
            if (n >= rate) committed.set(id, performance.now());
        }
        await client.end();
    };
    await Promise.all(Array.from({ length: SESSIONS }, (_, first) => write(first)));
    return (count * 1000) / (performance.now() - began);
}

const stop = follow();
const written = isSingle ? await writeSingly(seconds) : await writeSteadily();
const missing = () => [...committed.keys()].filter((id) => !arrived.has(id)).length;
for (const deadline = performance.now() + STALL_MS; missing() > 0; await sleep(20)) {
    if (performance.now() > deadline) throw new Error(`${missing()} of ${committed.size} never arrived in ${STREAM}`);
}
stop();
const waits = [...committed].map(([id, at]) => Math.max(arrived.get(id) - at, 0));
const at = (share) => percentile(waits, share).toFixed(1);
const what = isSingle ? "single commits at random times" : `${rate}/s wanted, ${written.toFixed(0)}/s written`;
const spread = `p50 ${at(0.5)} ms, p90 ${at(0.9)}, p99 ${at(0.99)}, max ${at(1)}`;
console.log(`${what}: commit to queue ${spread} (${waits.length} commits)`);
