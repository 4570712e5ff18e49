// Twenty topics of one provider, one of them with a backlog. While that drains, single notifications of the others
// arrive: how long from COMMIT returned until they are at the sink?
import { setTimeout as sleep } from "node:timers/promises";
import { DEVICE, TOPICS } from "./jobs.mjs";
import { allArrived, waits } from "./paced.mjs";
import { assertMoves } from "./progress.mjs";
import { counter, recorder } from "./sinks.mjs";
import { percentile } from "./statistics.mjs";

const SINGLES_PER_SECOND = 100;
/** Jobs of the backlog are numbered from 1: the singles come after any of them. */
const FIRST_SINGLE = 10_000_000;

/** A backlog of `count`, with singles beside it until it is gone. */
export async function topics(system, count) {
    const [backlogged, ...others] = TOPICS;
    const sink = await recorder({ port: Number(process.env.BENCH_SINGLES_PORT) });
    const session = await system.open();
    let worker;
    try {
        await session.preload(count, backlogged, [DEVICE]);
        const before = await counter.seen();
        worker = system.start({ url: `http://127.0.0.1:${process.env.BENCH_TOPICS_PORT}/`, topics: TOPICS.length });
        // nginx counts the singles too.
        const drained = async () => (await counter.seen()) - before - sink.times.length;
        let [seen, progress] = [0, performance.now()];
        while ((seen = await drained()) <= 0) {
            worker.assertRuns();
            assertMoves(system, progress, `none of ${count} sent`);
            await sleep(2);
        }
        const committed = [];
        const began = performance.now();
        while (seen < count) {
            const n = committed.length;
            await sleep(Math.max(began + (n * 1000) / SINGLES_PER_SECOND - performance.now(), 0));
            await session.add(others[n % others.length], DEVICE, FIRST_SINGLE + n);
            committed.push([FIRST_SINGLE + n, performance.now()]);
            const now = await drained();
            worker.assertRuns();
            if (now > seen) [seen, progress] = [now, performance.now()];
            assertMoves(system, progress, `${seen} of ${count} sent`);
        }
        const perSecond = (count * 1000) / (performance.now() - began);
        await allArrived(system, worker, sink, committed.length);
        while (await session.left()) await sleep(2);
        const singles = waits(committed, sink.arrived);
        return { perSecond, p50: percentile(singles, 0.5), p99: percentile(singles, 0.99), singles: singles.length };
    } finally {
        await worker?.stop();
        await session.close();
        sink.close();
    }
}
