// BullMQ on the benchmark's work: a queue and a worker for each topic, over Redis alone.
import { Worker } from "bullmq";
import { Redis } from "ioredis";
import { post } from "./post.mjs";
import { settings } from "./settings.mjs";

const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
const options = {
    connection,
    concurrency: settings.concurrency,
    ...(settings.rateLimit && { limiter: { max: settings.rateLimit, duration: 1000 } }),
};
const deliver = (job) =>
    post({ id: job.id, topic: job.queueName, createdAt: new Date(job.timestamp).toISOString(), data: job.data });

const workers = settings.topics.map((topic) => new Worker(topic, deliver, options));
for (const worker of workers) {
    worker.on("error", (error) => console.error(error));
    worker.on("failed", (_, error) => console.error(error));
}
process.on("SIGTERM", async () => {
    await Promise.all(workers.map((worker) => worker.close()));
    process.exit(0);
});
