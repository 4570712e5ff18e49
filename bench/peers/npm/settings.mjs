// What bench/run tells a worker.
const topics = Number(process.env.TOPICS ?? 1);

export const settings = {
    /** The topics it works on: bench-0, bench-1, … */
    topics: Array.from({ length: topics }, (_, n) => `bench-${n}`),
    /** Where jobs go, unless each says so itself. */
    sink: process.env.SINK_URL,
    isFromRow: process.env.URL_FROM_ROW === "1",
    /** Jobs a second at most. */
    rateLimit: process.env.RATE_LIMIT ? Number(process.env.RATE_LIMIT) : undefined,
    concurrency: 64,
};
