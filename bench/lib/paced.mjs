// Paced: one transaction a job at a steady rate; each is timed from COMMIT returned to its arrival at a sink in this
// process, so one clock serves both ends. The first second is not counted.
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, payload, start } from "./systems.mjs";

const SESSIONS = 4;
const WARM_UP_S = 1;
const STALL_MS = 30_000;

function recordingSink() {
    const arrived = new Map();
    const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
        const at = performance.now();
        let body = "";
        request.on("data", (chunk) => (body += chunk));
        request.on("end", () => {
            const { n } = JSON.parse(body).payload;
            if (!arrived.has(n)) arrived.set(n, at);
            response.end();
        });
    });
    server.keepAliveTimeout = 600_000;
    return new Promise((resolve) =>
        server.listen(0, "127.0.0.1", () =>
            resolve({ arrived, url: `http://127.0.0.1:${server.address().port}/`, close: () => server.closeAllConnections() ?? server.close() }),
        ),
    );
}

const percentile = (sorted, share) => sorted[Math.round((sorted.length - 1) * share)];

/** `rate` jobs a second for `seconds`. */
export async function paced(system, rate, seconds) {
    const sink = await recordingSink();
    const worker = start(system, sink.url);
    await sleep(1500); // until it listens
    const count = rate * (seconds + WARM_UP_S);
    const committed = new Map();
    const began = performance.now();
    const session = async (first) => {
        const client = await connect(system.url);
        for (let n = first; n < count; n += SESSIONS) {
            const wait = began + (n * 1000) / rate - performance.now();
            if (wait > 0) await sleep(wait);
            await client.query({ name: "add", text: system.add, values: [payload(n)] });
            committed.set(n, performance.now());
        }
        await client.end();
    };
    await Promise.all(Array.from({ length: SESSIONS }, (_, first) => session(first)));
    const deadline = performance.now() + STALL_MS;
    while (sink.arrived.size < count) {
        if (performance.now() > deadline) {
            await worker.stop();
            sink.close();
            throw new Error(`${system.name}: only ${sink.arrived.size} of ${count} arrived`);
        }
        await sleep(10);
    }
    await worker.stop();
    sink.close();
    const counted = [...committed].filter(([n]) => n >= rate * WARM_UP_S);
    const waits = counted.map(([n, at]) => Math.max(sink.arrived.get(n) - at, 0)).sort((a, b) => a - b);
    return { p50: percentile(waits, 0.5), p99: percentile(waits, 0.99) };
}
