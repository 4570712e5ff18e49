// Paced: one transaction a job at a steady rate; each is timed from COMMIT returned to its arrival at a sink in this
// process, so one clock serves both ends. The first second is not counted.
import { setTimeout as sleep } from "node:timers/promises";
import { DEVICE, TOPICS } from "./jobs.mjs";
import { assertMoves } from "./progress.mjs";
import { recorder } from "./sinks.mjs";
import { percentile } from "./statistics.mjs";

const SESSIONS = 4;
const WARM_UP_S = 1;
const START_MS = 1500;

/** The waits of `committed` (job → when) until `arrived` (job → when), in ms. */
export const waits = (committed, arrived) => committed.map(([n, at]) => Math.max(arrived.get(n) - at, 0));

/** Waits until `count` jobs have arrived. */
export async function allArrived(system, worker, sink, count) {
    let [seen, progress] = [0, performance.now()];
    while (sink.arrived.size < count) {
        if (sink.arrived.size > seen) [seen, progress] = [sink.arrived.size, performance.now()];
        worker.assertRuns();
        assertMoves(system, progress, `${seen} of ${count} arrived`);
        await sleep(10);
    }
}

/** `rate` jobs a second for `seconds`. */
export async function paced(system, rate, seconds) {
    const sink = await recorder();
    const worker = system.start({ url: sink.url });
    try {
        await sleep(START_MS); // until it listens
        const count = rate * (seconds + WARM_UP_S);
        const committed = new Map();
        const began = performance.now();
        const write = async (first) => {
            const session = await system.open();
            for (let n = first; n < count; n += SESSIONS) {
                const wait = began + (n * 1000) / rate - performance.now();
                if (wait > 0) await sleep(wait);
                await session.add(TOPICS[0], DEVICE, n);
                committed.set(n, performance.now());
            }
            await session.close();
        };
        await Promise.all(Array.from({ length: SESSIONS }, (_, first) => write(first)));
        await allArrived(system, worker, sink, count);
        const counted = waits([...committed].filter(([n]) => n >= rate * WARM_UP_S), sink.arrived);
        return { p50: percentile(counted, 0.5), p99: percentile(counted, 0.99) };
    } finally {
        await worker.stop();
        sink.close();
    }
}
