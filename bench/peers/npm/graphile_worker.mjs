// graphile-worker on the benchmark's work: a task for each topic, all in one line. `migrate` only creates its schema.
import { Logger, run, runMigrations } from "graphile-worker";
import { post } from "./post.mjs";
import { settings } from "./settings.mjs";

const connectionString = process.env.DATABASE_URL;
const logger = new Logger(() => (level, message) => {
    if (level === "error") console.error(message);
});

if (process.argv[2] === "migrate") {
    await runMigrations({ connectionString, logger });
    process.exit(0);
}

const deliver = (topic) => (data, { job }) => post({ id: job.id, topic, createdAt: job.created_at, data });
const runner = await run({
    logger,
    taskList: Object.fromEntries(settings.topics.map((topic) => [topic, deliver(topic)])),
    preset: {
        worker: {
            connectionString,
            concurrentJobs: settings.concurrency,
            maxPoolSize: 10,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
        },
    },
});
await runner.promise;
