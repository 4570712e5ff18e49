// outboxd as shipped; a case changes only the settings of its channel.
import { run, start } from "../children.mjs";
import { payload, TEXT } from "../jobs.mjs";
import { createDatabase, databaseUrl, openSession } from "../postgres.mjs";

const SQL = {
    add: `SELECT outboxd.notify($1, $2, $3::jsonb)`,
    values: (topic, recipient, n) => [topic, recipient, JSON.stringify(payload(n))],
    preload: `SELECT count(outboxd.notify($3, ($4::text[])[1 + n % cardinality($4::text[])],
                                          jsonb_build_object('n', n, 'text', '${TEXT}')))
                FROM generate_series($1::int, $2::int) n`,
    left: `SELECT EXISTS (SELECT FROM outboxd.outbox)`,
    tables: `outboxd.notification_log, outboxd.outbox`,
};

/** The channel of a case, as environment. */
const channel = ({ url, fromRow, topics, rateLimit, maxInFlight }) => ({
    OUTBOXD_CHANNELS_BENCH_URL: fromRow ? "{{ recipient }}" : url,
    // Everything here is on loopback, which a URL from data may not reach otherwise.
    ...(fromRow && { OUTBOXD_CHANNELS_BENCH_ALLOW_PRIVATE: "true" }),
    ...(topics > 1 && { OUTBOXD_CHANNELS_BENCH_HEADERS_X_TOPIC: "{{ topic }}" }),
    ...(rateLimit && { OUTBOXD_CHANNELS_BENCH_RATE_LIMIT: `${rateLimit}/s` }),
    ...(maxInFlight && { OUTBOXD_CHANNELS_BENCH_MAX_IN_FLIGHT: `${maxInFlight}` }),
});

/** One build with one kind of queue, in a database and under Redis keys of its own. */
export function outboxd(name, binary, queue) {
    const database = `bench_${name.replaceAll("-", "_")}`;
    const env = (settings) => ({
        DATABASE_URL: databaseUrl(database),
        OUTBOXD_CONFIG: "/dev/null",
        OUTBOXD_LOG: process.env.BENCH_LOG ?? "warn",
        OUTBOXD_HTTP_ADDR: `127.0.0.1:${settings.httpPort ?? 0}`,
        OUTBOXD_QUEUE_KIND: queue,
        ...(queue !== "memory" && { REDIS_URL: process.env.REDIS_URL, OUTBOXD_QUEUE_PREFIX: database }),
        OUTBOXD_ROUTES_DEFAULT_CHANNELS: "bench",
        ...channel(settings),
    });
    return {
        name,
        can: ["rateLimit", "maxInFlight"],
        hasMetrics: true,
        async prepare() {
            await createDatabase(database);
            run([binary(), "migrate"], env({ url: "http://127.0.0.1:1/" }));
        },
        open: () => openSession(databaseUrl(database), SQL),
        start: (settings) => start(name, [binary(), "run"], env(settings)),
    };
}
