// A limit under a backlog: is it kept, how close to it does the drain get, and how many claims are given back for it?
import { freePort } from "./children.mjs";
import { drain } from "./drain.mjs";
import { DEVICE } from "./jobs.mjs";
import { counters } from "./metrics.mjs";
import { recorder } from "./sinks.mjs";
import { meanWithin, mostWithin } from "./statistics.mjs";

/** How far above the limit arrivals may come: calls start evenly, but the way to the sink takes now more, now less. */
const TOLERANCE = 1.02;

async function limited(system, count, { delayMs, settings, judge }) {
    const sink = await recorder({ delayMs });
    const httpPort = system.hasMetrics ? await freePort() : undefined;
    const inspect = async () => {
        const result = judge(sink);
        if (!httpPort) return result;
        const { outboxd_claims_total: claims = 0, outboxd_released_total: released = 0 } = await counters(httpPort);
        return { ...result, claims: (claims / count) * 100, released: (released / count) * 100 };
    };
    try {
        return await drain(system, { count, sink, recipients: [DEVICE], settings: { ...settings, httpPort }, inspect });
    } finally {
        sink.close();
    }
}

/**
 * `limit` calls a second: the most arrivals in any second, and how many a second holds on average. Jobs over time would
 * say more than the limit where calls come in bursts: a burst takes no time.
 */
export const rateLimit = (system, count, limit) =>
    limited(system, count, {
        settings: { rateLimit: limit },
        judge: ({ times }) => {
            const most = mostWithin(times, 1000);
            return {
                perSecond: meanWithin(times, 1000),
                most,
                kept: most <= limit * TOLERANCE,
                limit: `${limit} in any second`,
            };
        },
    });

/** `limit` calls under way to a provider that takes 10 ms: the most at once. */
export const maxInFlight = (system, count, limit) =>
    limited(system, count, {
        delayMs: 10,
        settings: { maxInFlight: limit },
        judge: ({ times, atOnce }) => ({
            perSecond: ((times.length - 1) * 1000) / (times.at(-1) - times[0]),
            most: atOnce,
            kept: atOnce <= limit,
            limit: `${limit} at once`,
        }),
    });
