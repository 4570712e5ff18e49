// Counters of an outboxd, from its /metrics.

/** Sums of its counters over their labels: { outboxd_sent_total: 3000, … }. */
export async function counters(httpPort) {
    const text = await (await fetch(`http://127.0.0.1:${httpPort}/metrics`)).text();
    const sums = {};
    for (const [, name, value] of text.matchAll(/^(\w+_total)(?:\{[^}]*\})? (\S+)$/gm)) {
        sums[name] = (sums[name] ?? 0) + Number(value);
    }
    return sums;
}
