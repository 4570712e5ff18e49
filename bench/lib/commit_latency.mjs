// From COMMIT returned to the message in the Redis stream: writers and the reader of the stream are one process, so one clock
// serves both ends. Usage: node commit_latency.mjs RATE SECONDS, with DATABASE_URL and REDIS_URL; the first second is not counted.
// Or: node commit_latency.mjs single COUNT, for single commits up to 600 ms apart, before and after the relay falls asleep.
import { connect as dial } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const isSingle = process.argv[2] === "single";
const [rate, seconds] = process.argv.slice(2).map(Number);
const SESSIONS = rate > 500 ? 16 : 4;
const KEY = "{outboxd}:v1:stream";
const arrived = new Map();

/** Reads the stream as it grows, and deletes what was read so that it never fills. */
function follow(url) {
    const { hostname, port } = new URL(url);
    const command = (...words) => `*${words.length}\r\n${words.map((w) => `$${Buffer.byteLength(w)}\r\n${w}\r\n`).join("")}`;
    const socket = dial(Number(port), hostname);
    const janitor = dial(Number(port), hostname);
    socket.setNoDelay(true);
    janitor.resume();
    let last = "$";
    const read = () => socket.write(command("XREAD", "BLOCK", "0", "STREAMS", KEY, last));
    let text = "";
    socket.on("data", (chunk) => {
        const at = performance.now();
        text += chunk;
        // A reply is whole when the last entry's element is: entries are "ms-seq" followed by m and "id:epoch", several of them separated by commas.
        const entries = [...text.matchAll(/(\d+-\d+)\r\n\*2\r\n\$1\r\nm\r\n\$\d+\r\n([\d:,]+)\r\n/g)];
        const expected = /^\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n/.exec(text);
        if (!expected || entries.length < Number(expected[1])) return;
        for (const [, , elements] of entries) {
            for (const id of elements.split(",").map((element) => element.split(":")[0])) {
                if (!arrived.has(id)) arrived.set(id, at);
            }
        }
        last = entries.at(-1)[1];
        text = "";
        read();
        janitor.write(command("XDEL", KEY, ...entries.map(([, entry]) => entry)));
    });
    read();
    return () => [socket, janitor].forEach((end) => end.destroy());
}

const stop = follow(process.env.REDIS_URL);
const count = rate * (seconds + 1);
const committed = new Map();
const began = performance.now();
const notify = async (client) => {
    const text = `SELECT outboxd.notify('orders', 'device-1', '{"text": "Your order has been paid."}') AS id`;
    return String((await client.query({ name: "add", text })).rows[0].id);
};
const single = async () => {
    const client = new pg.Client(process.env.DATABASE_URL);
    await client.connect();
    // The first is slow for the writer's sake, which plans it.
    for (let n = 0; n <= seconds; n += 1) {
        await sleep(Math.random() * 600);
        const id = await notify(client);
        if (n > 0) committed.set(id, performance.now());
    }
    await client.end();
};
const session = async (first) => {
    const client = new pg.Client(process.env.DATABASE_URL);
    await client.connect();
    for (let n = first; n < count; n += SESSIONS) {
        const wait = began + (n * 1000) / rate - performance.now();
        if (wait > 0) await sleep(wait);
        const id = await notify(client);
        if (n >= rate) committed.set(id, performance.now());
    }
    await client.end();
};
await (isSingle ? single() : Promise.all(Array.from({ length: SESSIONS }, (_, first) => session(first))));
const took = (performance.now() - began) / 1000;
for (const deadline = performance.now() + 30_000; [...committed.keys()].some((id) => !arrived.has(id)); await sleep(20)) {
    if (performance.now() > deadline) throw new Error(`${[...committed.keys()].filter((id) => !arrived.has(id)).length} never arrived`);
}
stop();
const waits = [...committed].map(([id, at]) => Math.max(arrived.get(id) - at, 0)).sort((a, b) => a - b);
const at = (share) => waits[Math.round((waits.length - 1) * share)].toFixed(1);
const what = isSingle ? "single commits at random times" : `${rate}/s wanted, ${Math.round(count / took)}/s written`;
console.log(`${what}: commit to queue p50 ${at(0.5)} ms, p90 ${at(0.9)}, p99 ${at(0.99)}, max ${at(1)} (${waits.length} commits)`);
