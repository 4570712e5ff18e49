// The cases that users have. `needs` names a limit that a system must know to take part; `isDrain` puts it into the
// chart.
import { drain } from "./drain.mjs";
import { DEVICE } from "./jobs.mjs";
import { maxInFlight, rateLimit } from "./limits.mjs";
import { paced } from "./paced.mjs";
import { counter, recorder } from "./sinks.mjs";
import { topics } from "./topics.mjs";

const RATE_LIMIT = 500;
const MAX_IN_FLIGHT = 4;
const SLOW_MS = 100;

const fixed = (system, { count, statements }) =>
    drain(system, { count, statements, sink: counter, recipients: [DEVICE] });

const fromRow = (origins) => (system, { count, statements }) => {
    const recipients = counter.origins(origins);
    return drain(system, { count, statements, sink: counter, recipients, settings: { fromRow: true } });
};

async function slow(system, { count, statements }) {
    const sink = await recorder({ delayMs: SLOW_MS });
    try {
        return await drain(system, { count: Math.ceil(count / 4), statements, sink, recipients: [DEVICE] });
    } finally {
        sink.close();
    }
}

/** Enough for a rate to show: a few seconds of it. */
const limitedCount = (count) => Math.max(Math.ceil((count * 3) / 20), RATE_LIMIT * 3);

export const cases = {
    fixed: { title: "one fixed URL", isDrain: true, measure: fixed },
    "row-1": { title: "the URL comes from the row, 1 destination", isDrain: true, measure: fromRow(1) },
    "row-100": { title: "the URL comes from the row, 100 destinations", isDrain: true, measure: fromRow(100) },
    "slow-100ms": { title: "a provider that takes 100 ms", isDrain: true, measure: slow },
    "rate-limit": {
        title: `a rate limit of ${RATE_LIMIT}/s under a backlog`,
        needs: "rateLimit",
        measure: (system, { count }) => rateLimit(system, limitedCount(count), RATE_LIMIT),
    },
    "in-flight-4": {
        title: `at most ${MAX_IN_FLIGHT} calls under way, a provider that takes 10 ms`,
        needs: "maxInFlight",
        measure: (system, { count }) => maxInFlight(system, limitedCount(count), MAX_IN_FLIGHT),
    },
    "topics-20": {
        title: "20 topics, one with a backlog; singles of the others",
        measure: (system, { count }) => topics(system, count),
    },
    paced: {
        title: "single notifications at a steady rate",
        measure: (system, { rate, seconds }) => paced(system, rate, seconds),
    },
};
