// Drain: a backlog is written, then the worker starts; timed from the first request at the sink until the last job is
// recorded as done. nginx counts the requests, so nobody's database is asked while the clock runs.
import { setTimeout as sleep } from "node:timers/promises";
import { used } from "./cpu.mjs";
import { connect, start } from "./systems.mjs";

const sink = `http://127.0.0.1:${process.env.BENCH_NGINX_PORT}`;
const STALL_MS = 60_000;
const groups = Object.entries(JSON.parse(process.env.BENCH_PIDS)).filter(([, pid]) => pid > 0);

let polls = 0;
/** Requests at the sink so far, our own looks not counted. */
async function requests() {
    const text = await (await fetch(`${sink}/status`)).text();
    polls += 1;
    return Number(text.split("\n")[2].trim().split(" ")[2]) - polls;
}

const wal = async (client) =>
    Number((await client.query(`SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS at`)).rows[0].at);

async function preload(client, system, count) {
    for (let from = 1; from <= count; from += 1000) {
        await client.query(system.preload, [from, Math.min(from + 999, count)]);
    }
    await client.query(`VACUUM ANALYZE ${system.tables}`);
}

const snapshot = (pid) =>
    Object.fromEntries([["worker", pid], ...groups].map(([name, root]) => [name, used(root)]));

const STATEMENTS = `
    SELECT regexp_replace(regexp_replace(query, '--[^\n]*', '', 'g'), '\\s+', ' ', 'g') AS query, calls::int, rows::int,
           round(total_exec_time::numeric, 1)::float AS total_ms, wal_bytes::float
      FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
     WHERE d.datname = current_database() ORDER BY total_exec_time DESC LIMIT 12`;

/**
 * Until the next look, in ms: half of what is left at the pace so far, so that the end is seen at once and whoever uses
 * both cores is not slowed by being looked at two hundred times a second.
 */
const pause = (began, seen, count) =>
    Math.min(100, Math.max(3, ((performance.now() - began) * (count - seen)) / Math.max(seen, 1) / 2));

/** One drain of `count` jobs. */
export async function drain(system, count, { statements }) {
    const client = await connect(system.url);
    await preload(client, system, count);
    if (statements) await client.query("SELECT pg_stat_statements_reset()");
    const [before, walBefore] = [await requests(), await wal(client)];
    const worker = start(system, `${sink}/`);
    let [began, cpu, seen, progress] = [undefined, undefined, 0, performance.now()];
    while (seen < count) {
        await sleep(began ? pause(began, seen, count) : 1);
        const now = (await requests()) - before;
        if (now > 0 && !began) [began, cpu] = [performance.now(), snapshot(worker.pid)];
        if (now > seen) [seen, progress] = [now, performance.now()];
        if (performance.now() - progress > STALL_MS) throw new Error(`${system.name}: ${seen} of ${count}, then nothing`);
    }
    while ((await client.query(system.left)).rows[0].left) await sleep(2);
    const seconds = (performance.now() - began) / 1000;
    const after = snapshot(worker.pid);
    const result = {
        perSecond: count / seconds,
        wal: ((await wal(client)) - walBefore) / count,
        cpu: Object.fromEntries(Object.keys(after).map((name) => [name, (after[name] - cpu[name]) / count])),
        repeats: seen - count,
    };
    if (statements) result.statements = (await client.query(STATEMENTS)).rows;
    await worker.stop();
    await client.end();
    return result;
}
