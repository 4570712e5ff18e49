// Rows of the table: one for each case and system, medians over the rounds with their range.
import { median } from "./statistics.mjs";
import { REFERENCE } from "./systems.mjs";
import { figure } from "./table.mjs";

const CPU = { worker: "worker", postgres: "pg", redis: "redis", nginx: "nginx" };

function note(rounds) {
    const all = (field) => rounds.map((one) => one[field]).filter((value) => value !== undefined);
    const said = [];
    if (all("limit").length > 0) {
        const kept = all("kept").every(Boolean) ? "kept" : "NOT KEPT";
        said.push(`most ${figure(all("most"))}, limit ${all("limit")[0]}: ${kept}`);
    }
    if (all("released").length > 0) {
        said.push(`for 100 deliveries ${figure(all("claims"))} claims, ${figure(all("released"), 1)} given back`);
    }
    if (all("singles").length > 0) said.push(`${figure(all("singles"))} singles`);
    const repeats = all("repeats").reduce((sum, n) => sum + n, 0);
    if (repeats > 0) said.push(`${repeats} sent twice`);
    return said.join("; ");
}

/** `results` are case → system → one result a round. */
export function summarise(results) {
    const rows = [];
    for (const [name, bySystem] of Object.entries(results)) {
        const rate = (rounds) => median((rounds ?? []).map((one) => one.perSecond).filter(Number.isFinite));
        const reference = rate(bySystem[REFERENCE]);
        for (const [system, rounds] of Object.entries(bySystem)) {
            if (rounds.length === 0) continue;
            const all = (pick) => rounds.map(pick).filter(Number.isFinite);
            const middle = (pick) => (all(pick).length > 0 ? median(all(pick)).toFixed(0) : "");
            const row = {
                case: name,
                system,
                "jobs/s": figure(all((one) => one.perSecond)),
                "× npm": reference && rate(rounds) ? (rate(rounds) / reference).toFixed(2) : "",
                "p50 ms": figure(all((one) => one.p50), 1),
                "p99 ms": figure(all((one) => one.p99), 1),
                "WAL B": middle((one) => one.wal),
                "WAL life B": middle((one) => one.walLife),
            };
            for (const [group, title] of Object.entries(CPU)) row[`µs ${title}`] = middle((one) => one.cpu?.[group]);
            rows.push({ ...row, note: note(rounds) });
        }
    }
    return rows;
}
