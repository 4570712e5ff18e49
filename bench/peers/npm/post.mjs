// One POST a job over keep-alive connections, 64 at most to an origin.
import { Pool } from "undici";
import { settings } from "./settings.mjs";

const pools = new Map();
const fixed = settings.sink && new URL(settings.sink);

function poolOf(origin) {
    let pool = pools.get(origin);
    if (!pool) pools.set(origin, (pool = new Pool(origin, { connections: settings.concurrency })));
    return pool;
}

/** Delivers one job; throws unless the sink says 2xx. */
export async function post({ id, topic, createdAt, data: { to, ...payload } }) {
    const url = settings.isFromRow ? new URL(to) : fixed;
    const headers = { "content-type": "application/json" };
    if (settings.topics.length > 1) headers["x-topic"] = topic;
    const answer = await poolOf(url.origin).request({
        path: url.pathname,
        method: "POST",
        headers,
        body: JSON.stringify({ id, topic, recipient: to, payload, created_at: createdAt }),
    });
    await answer.body.dump();
    if (answer.statusCode >= 300) throw new Error(`status ${answer.statusCode}`);
}
