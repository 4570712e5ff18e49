// graphile-worker (npm) on the benchmark's work: one POST per job over keep-alive connections.
// `migrate` as first argument only creates its schema.
import { Logger, run, runMigrations } from "graphile-worker";
import { Pool } from "undici";

const connectionString = process.env.DATABASE_URL;
const logger = new Logger(() => (level, message) => {
    if (level === "error") console.error(message);
});

if (process.argv[2] === "migrate") {
    await runMigrations({ connectionString, logger });
    process.exit(0);
}

const sink = new URL(process.env.SINK_URL);
const http = new Pool(sink.origin, { connections: 64 });

async function deliver(payload, helpers) {
    const body = JSON.stringify({
        id: helpers.job.id,
        topic: "bench",
        recipient: "device-1",
        payload,
        created_at: helpers.job.created_at,
    });
    const answer = await http.request({
        path: sink.pathname,
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
    });
    await answer.body.dump();
    if (answer.statusCode >= 300) throw new Error(`status ${answer.statusCode}`);
}

const runner = await run({
    logger,
    taskList: { deliver },
    preset: {
        worker: {
            connectionString,
            concurrentJobs: 64,
            maxPoolSize: 10,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
        },
    },
});
await runner.promise;
