// Where the jobs arrive.
import { createServer } from "node:http";

const nginx = process.env.SINK_URL;
const ADDRESSES = 100;

let reads = 0;
/** nginx: answers at once and counts, so that no database is asked while the clock runs. */
export const counter = {
    url: nginx,
    /** One URL for each of `count` origins. */
    origins(count) {
        if (count > ADDRESSES) throw new Error(`nginx listens on ${ADDRESSES} addresses, not ${count}`);
        const port = new URL(nginx).port;
        return Array.from({ length: count }, (_, n) => `http://127.0.0.${n + 1}:${port}/hooks/orders`);
    },
    /** Requests so far, our own reads not counted. */
    async seen() {
        const text = await (await fetch(`${nginx}status`)).text();
        reads += 1;
        return Number(text.split("\n")[2].trim().split(" ")[2]) - reads;
    },
    close() {},
};

/** A sink in this process that takes `delayMs` to answer. It knows when each job came first, and how many at once. */
export async function recorder({ delayMs = 0, port = 0 } = {}) {
    const sink = { arrived: new Map(), times: [], atOnce: 0, seen: async () => sink.times.length };
    let underWay = 0;
    const server = createServer((request, response) => {
        const at = performance.now();
        underWay += 1;
        sink.atOnce = Math.max(sink.atOnce, underWay);
        const answer = () => {
            underWay -= 1;
            response.end();
        };
        let body = "";
        request.on("data", (chunk) => (body += chunk));
        request.on("end", () => {
            const { n } = JSON.parse(body).payload;
            sink.times.push(at);
            if (!sink.arrived.has(n)) sink.arrived.set(n, at);
            if (delayMs > 0) setTimeout(answer, delayMs);
            else answer();
        });
    });
    server.keepAliveTimeout = 600_000;
    await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
    sink.url = `http://127.0.0.1:${server.address().port}/`;
    sink.close = () => {
        server.closeAllConnections();
        server.close();
    };
    return sink;
}
