// The peers: programs under bench/peers that take their settings from the environment.
import { join } from "node:path";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { run, start } from "../children.mjs";
import { CHUNK, payload, TEXT, TOPICS } from "../jobs.mjs";
import { createDatabase, databaseUrl, openSession } from "../postgres.mjs";

const npm = (file) => [process.execPath, new URL(`../../peers/npm/${file}`, import.meta.url).pathname];
const job = (recipient, n) => ({ ...payload(n), to: recipient });

const settingsOf = ({ url, fromRow, topics, rateLimit }) => ({
    SINK_URL: url,
    TOPICS: `${topics ?? 1}`,
    ...(fromRow && { URL_FROM_ROW: "1" }),
    ...(rateLimit && { RATE_LIMIT: `${rateLimit}` }),
});

const GRAPHILE = {
    add: `SELECT graphile_worker.add_job($1, $2::json)`,
    values: (topic, recipient, n) => [topic, JSON.stringify(job(recipient, n))],
    preload: `SELECT count(graphile_worker.add_job($3, json_build_object('n', n, 'text', '${TEXT}',
                     'to', ($4::text[])[1 + n % cardinality($4::text[])])))
                FROM generate_series($1::int, $2::int) n`,
    left: `SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)`,
    tables: `graphile_worker._private_jobs`,
};

const PG_BOSS = {
    add: `INSERT INTO pgboss.job (name, data) VALUES ($1, $2::jsonb)`,
    values: GRAPHILE.values,
    preload: `INSERT INTO pgboss.job (name, data)
              SELECT $3, jsonb_build_object('n', n, 'text', '${TEXT}',
                     'to', ($4::text[])[1 + n % cardinality($4::text[])])
                FROM generate_series($1::int, $2::int) n`,
    left: `SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed')`,
    tables: `pgboss.job`,
    // It keeps what is done for hours, and whether any is left is asked without an index.
    before: [`TRUNCATE pgboss.job`],
};

function overPostgres(name, command, sql) {
    const database = `bench_${name.replaceAll("-", "_")}`;
    const env = (settings) => ({ DATABASE_URL: databaseUrl(database), ...settingsOf(settings) });
    return {
        name,
        can: [],
        async prepare() {
            await createDatabase(database);
            run([...command(), "migrate"], env({ url: "http://127.0.0.1:1/" }));
        },
        open: () => openSession(databaseUrl(database), sql),
        start: (settings) => start(name, command(), env(settings)),
    };
}

/** A session with BullMQ's queues. Nothing of it is in Postgres, so it has no WAL and no statements. */
async function openQueues() {
    const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
    // Removed when done, as graphile-worker does; otherwise it keeps every job for ever.
    const options = { connection, defaultJobOptions: { removeOnComplete: true } };
    const queues = new Map(TOPICS.map((topic) => [topic, new Queue(topic, options)]));
    await Promise.all([...queues.values()].map((queue) => queue.waitUntilReady()));
    return {
        add: (topic, recipient, n) => queues.get(topic).add(topic, job(recipient, n)),
        async preload(count, topic, recipients) {
            for (let from = 1; from <= count; from += CHUNK) {
                const numbers = Array.from({ length: Math.min(CHUNK, count - from + 1) }, (_, i) => from + i);
                const jobs = numbers.map((n) => ({ name: topic, data: job(recipients[n % recipients.length], n) }));
                await queues.get(topic).addBulk(jobs);
            }
        },
        async left() {
            for (const queue of queues.values()) {
                if ((await queue.getJobCountByTypes("wait", "active", "delayed", "prioritized")) > 0) return true;
            }
            return false;
        },
        wal: async () => undefined,
        async close() {
            await Promise.all([...queues.values()].map((queue) => queue.close()));
            connection.disconnect();
        },
    };
}

const rust = () => [join(process.env.BENCH_PEER_TARGET, "release/bench-graphile-worker")];

export const peers = [
    overPostgres("graphile-worker", () => npm("graphile_worker.mjs"), GRAPHILE),
    overPostgres("graphile_worker_rs", rust, GRAPHILE),
    {
        name: "bullmq",
        can: ["rateLimit"],
        prepare: async () => {},
        open: openQueues,
        start: (settings) =>
            start("bullmq", npm("bullmq.mjs"), { REDIS_URL: process.env.REDIS_URL, ...settingsOf(settings) }),
    },
    overPostgres("pg-boss", () => npm("pg_boss.mjs"), PG_BOSS),
];
