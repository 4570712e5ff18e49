// The systems under comparison: how each is prepared, fed, started, and known to be done.
import { execFileSync, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";

const here = new URL("..", import.meta.url).pathname;
const work = process.env.BENCH_DIR;
const port = process.env.BENCH_PG_PORT;
const TEXT = "Your order has been paid and is on its way.";

const graphile = {
    add: `SELECT graphile_worker.add_job('deliver', $1::json)`,
    preload: `SELECT count(graphile_worker.add_job('deliver', json_build_object('n', n, 'text', '${TEXT}')))
                FROM generate_series($1::int, $2::int) n`,
    left: `SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS left`,
    tables: `graphile_worker._private_jobs`,
};

const outboxd = (queue) => ({
    add: `SELECT outboxd.notify('bench', 'device-1', $1::jsonb)`,
    preload: `SELECT count(outboxd.notify('bench', 'device-1', jsonb_build_object('n', n, 'text', '${TEXT}')))
                FROM generate_series($1::int, $2::int) n`,
    left: `SELECT EXISTS (SELECT FROM outboxd.outbox) AS left`,
    tables: `outboxd.notification_log, outboxd.outbox`,
    command: [process.env.BENCH_OUTBOXD, "run"],
    migrate: [process.env.BENCH_OUTBOXD, "migrate"],
    env: (url) => ({
        OUTBOXD_CONFIG: "/dev/null",
        OUTBOXD_LOG: process.env.BENCH_LOG ?? "warn",
        OUTBOXD_HTTP_ADDR: "127.0.0.1:0",
        OUTBOXD_QUEUE_KIND: queue,
        ...(queue === "memory" ? {} : { REDIS_URL: process.env.BENCH_REDIS_URL }),
        OUTBOXD_CHANNELS_BENCH_URL: url,
        OUTBOXD_ROUTES_DEFAULT_CHANNELS: "bench",
    }),
});

const npm = join(here, "peers/graphile_worker_npm/worker.mjs");
const rust = join(process.env.BENCH_PEER_TARGET ?? "", "release/bench-graphile-worker");

export const systems = {
    "outboxd-stream": outboxd("stream"),
    "outboxd-memory": outboxd("memory"),
    "graphile-worker": {
        ...graphile,
        command: [process.execPath, npm],
        migrate: [process.execPath, npm, "migrate"],
        env: (url) => ({ SINK_URL: url }),
    },
    graphile_worker_rs: {
        ...graphile,
        command: [rust],
        migrate: [rust, "migrate"],
        env: (url) => ({ SINK_URL: url }),
    },
};
for (const [name, system] of Object.entries(systems)) {
    system.name = name;
    system.database = `bench_${name.replaceAll("-", "_")}`;
    system.url = `postgres://postgres@127.0.0.1:${port}/${system.database}`;
}

const environment = (system, sink) => ({ PATH: process.env.PATH, DATABASE_URL: system.url, ...system.env(sink) });

/** Creates the system's database and schema. */
export async function prepare(system) {
    const admin = await connect(`postgres://postgres@127.0.0.1:${port}/postgres`);
    await admin.query(`CREATE DATABASE ${system.database}`);
    await admin.end();
    const [program, ...args] = system.migrate;
    const env = environment(system, "http://127.0.0.1:1/");
    execFileSync(program, args, { env, cwd: work, stdio: ["ignore", "ignore", "inherit"] });
}

/** Starts the system's worker against a sink; stop() ends it. */
export function start(system, sink) {
    const log = openSync(join(work, `${system.name}.log`), "a");
    const [program, ...args] = system.command;
    const child = spawn(program, args, { env: environment(system, sink), cwd: work, stdio: ["ignore", log, log] });
    closeSync(log);
    const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve(code ?? signal)));
    // A bench that fails leaves nothing running.
    const kill = () => child.kill("SIGKILL");
    process.on("exit", kill);
    ended.then(() => process.off("exit", kill));
    let stopping = false;
    ended.then((how) => {
        if (stopping) return;
        console.error(`${system.name} ended by itself: ${how}; see its log in ${work}`);
        process.exit(1);
    });
    return {
        pid: child.pid,
        async stop() {
            stopping = true;
            child.kill("SIGTERM");
            const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
            await ended;
            clearTimeout(late);
        },
    };
}

/** One session. */
export async function connect(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    return client;
}

/** The payload of paced job n. */
export const payload = (n) => JSON.stringify({ n, text: TEXT });
