// pg-boss on the benchmark's work: a queue for each topic, four workers on each that take 250 jobs at a time and look
// every half second. `migrate` only creates its schema and queues.
import PgBoss from "pg-boss";
import { post } from "./post.mjs";
import { settings } from "./settings.mjs";

const QUEUES = 20;
const WORKERS = 4;

const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, max: 10 });
boss.on("error", (error) => console.error(error));
await boss.start();

if (process.argv[2] === "migrate") {
    for (let n = 0; n < QUEUES; n += 1) await boss.createQueue(`bench-${n}`);
    await boss.stop({ graceful: false });
    process.exit(0);
}

const deliver = (topic) => (jobs) =>
    Promise.all(jobs.map(({ id, data }) => post({ id, topic, createdAt: new Date().toISOString(), data })));
for (const topic of settings.topics) {
    for (let n = 0; n < WORKERS; n += 1) {
        await boss.work(topic, { batchSize: 250, pollingIntervalSeconds: 0.5 }, deliver(topic));
    }
}
process.on("SIGTERM", async () => {
    await boss.stop({ graceful: true, timeout: 5000 });
    process.exit(0);
});
