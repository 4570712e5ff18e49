// Drain: a backlog is written, then the worker starts; timed from the first request at the sink until the last job is
// recorded as done.
import { setTimeout as sleep } from "node:timers/promises";
import { used } from "./cpu.mjs";
import { TOPICS } from "./jobs.mjs";
import { assertMoves } from "./progress.mjs";

const groups = Object.entries(JSON.parse(process.env.BENCH_PIDS ?? "{}"));

const snapshot = (pid) => Object.fromEntries([["worker", pid], ...groups].map(([name, root]) => [name, used(root)]));

/**
 * Until the next poll, in ms: half of what is left at the pace so far, so that the end is seen at once and whoever uses
 * both cores is not slowed by being polled two hundred times a second.
 */
const pause = (began, seen, count) =>
    Math.min(100, Math.max(3, ((performance.now() - began) * (count - seen)) / Math.max(seen, 1) / 2));

/** Waits until the sink has seen `count` jobs more than `before`, then until none is left. When it began and ended. */
async function watch(system, session, worker, sink, before, count) {
    let [began, cpu, seen, progress] = [undefined, undefined, 0, performance.now()];
    while (seen < count) {
        await sleep(began ? pause(began, seen, count) : 1);
        const now = (await sink.seen()) - before;
        if (now > 0 && !began) [began, cpu] = [performance.now(), snapshot(worker.pid)];
        if (now > seen) [seen, progress] = [now, performance.now()];
        worker.assertRuns();
        assertMoves(system, progress, `${seen} of ${count} sent`);
    }
    while (await session.left()) {
        await sleep(2);
        worker.assertRuns();
        assertMoves(system, progress, `all ${count} sent, not all recorded`);
    }
    return { began, cpu, ended: performance.now(), repeats: seen - count };
}

/**
 * One drain of `count` jobs for `recipients` in turn. `settings` go to the worker; `inspect` adds to the result while
 * the worker still runs.
 */
export async function drain(system, { count, sink, recipients, settings, statements, inspect }) {
    const session = await system.open();
    let worker;
    try {
        const written = await session.preload(count, TOPICS[0], recipients);
        const hasStatements = statements && session.statements;
        if (hasStatements) await session.forgetStatements();
        const [before, walBefore] = [await sink.seen(), await session.wal()];
        worker = system.start({ url: sink.url, ...settings });
        const { began, cpu, ended, repeats } = await watch(system, session, worker, sink, before, count);
        const [after, wal] = [snapshot(worker.pid), ((await session.wal()) - walBefore) / count];
        return {
            perSecond: (count * 1000) / (ended - began),
            ...(written !== undefined && { wal, walLife: wal + written / count }),
            cpu: Object.fromEntries(Object.keys(after).map((name) => [name, (after[name] - cpu[name]) / count])),
            repeats,
            ...(inspect && (await inspect())),
            ...(hasStatements && { count, statements: await session.statements() }),
        };
    } finally {
        await worker?.stop();
        await session.close();
    }
}
