// Runs the systems in interleaved rounds and prints the medians. Started by bench/run, which owns the servers.
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { drain } from "./lib/drain.mjs";
import { paced } from "./lib/paced.mjs";
import { prepare, systems } from "./lib/systems.mjs";

const { values: options } = parseArgs({
    options: {
        rounds: { type: "string", default: "3" },
        count: { type: "string", default: "20000" },
        rate: { type: "string", default: "200" },
        seconds: { type: "string", default: "10" },
        only: { type: "string", default: Object.keys(systems).join(",") },
        statements: { type: "boolean", default: false },
        output: { type: "string" },
    },
});
const number = (name) => Number(options[name]);
const chosen = options.only.split(",").map((name) => systems[name] ?? fail(`no system is called ${name}`));

function fail(message) {
    console.error(`${message}; there are ${Object.keys(systems).join(", ")}`);
    process.exit(2);
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor((numbers.length - 1) / 2)];
const results = Object.fromEntries(chosen.map(({ name }) => [name, { drain: [], paced: [] }]));

for (const system of chosen) await prepare(system);
for (let round = 1; round <= number("rounds"); round += 1) {
    for (const system of chosen) {
        const one = await drain(system, number("count"), options);
        results[system.name].drain.push(one);
        console.error(`round ${round}  ${system.name.padEnd(20)} drain ${one.perSecond.toFixed(0)}/s`);
    }
    for (const system of number("seconds") > 0 ? chosen : []) {
        try {
            const one = await paced(system, number("rate"), number("seconds"));
            results[system.name].paced.push(one);
            console.error(`round ${round}  ${system.name.padEnd(20)} paced p50 ${one.p50.toFixed(1)} p99 ${one.p99.toFixed(1)} ms`);
        } catch (error) {
            // A system that stalls has no figure; the others still have theirs.
            console.error(`round ${round}  ${error.message}`);
        }
    }
}

const reference = systems["graphile-worker"].name;
const rate = (name) => median(results[name].drain.map((one) => one.perSecond));
const rows = Object.entries(results).map(([name, { drain, paced }]) => {
    const of = (pick) => median(drain.map(pick));
    const rates = drain.map((one) => one.perSecond);
    const row = {
        system: name,
        "drain /s": `${of((one) => one.perSecond).toFixed(0)} (${Math.min(...rates).toFixed(0)}–${Math.max(...rates).toFixed(0)})`,
        "× npm": results[reference] ? (rate(name) / rate(reference)).toFixed(2) : "",
        "p50 ms": paced.length ? median(paced.map((one) => one.p50)).toFixed(1) : "",
        "p99 ms": paced.length ? median(paced.map((one) => one.p99)).toFixed(1) : "",
        "WAL B": of((one) => one.wal).toFixed(0),
    };
    for (const group of Object.keys(drain[0].cpu)) row[`CPU µs ${group}`] = of((one) => one.cpu[group]).toFixed(0);
    return row;
});
print(rows);
if (options.statements) {
    for (const [name, { drain }] of Object.entries(results)) {
        console.log(`\n${name}: statements by time, last round`);
        print(
            drain.at(-1).statements.map((s) => ({
                "ms in all": s.total_ms.toFixed(0),
                calls: s.calls,
                "rows a call": (s.rows / s.calls).toFixed(1),
                "µs a job": ((s.total_ms * 1000) / number("count")).toFixed(1),
                "WAL a job": (s.wal_bytes / number("count")).toFixed(0),
                statement: s.query.trim().slice(0, 90),
            })),
        );
    }
}
writeFileSync(options.output, JSON.stringify({ options, rows, results }, null, 1));
console.log(`\nwritten to ${options.output}`);

function print(table) {
    const columns = Object.keys(table[0] ?? {});
    const widths = columns.map((c) => Math.max(c.length, ...table.map((row) => String(row[c]).length)));
    const line = (cells) => cells.map((cell, i) => (i === columns.length - 1 || i === 0 ? String(cell).padEnd(widths[i]) : String(cell).padStart(widths[i]))).join("  ");
    console.log(["", line(columns), line(widths.map((w) => "─".repeat(w))), ...table.map((row) => line(columns.map((c) => row[c])))].join("\n"));
}
