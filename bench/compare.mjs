// Measures every case with every system that can do it, in interleaved rounds, and prints the medians. Started by
// bench/run, which owns the servers.
import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { cases } from "./lib/cases.mjs";
import { chart } from "./lib/chart.mjs";
import { readOptions } from "./lib/options.mjs";
import { summarise } from "./lib/report.mjs";
import { systems } from "./lib/systems.mjs";
import { print } from "./lib/table.mjs";

const options = readOptions(process.argv.slice(2));
const load = () => loadavg()[0].toFixed(2);
const machine = { cores: cpus().length, cpu: cpus()[0]?.model, load: [load()] };
/** case → system → one result a round. */
const results = {};

for (const name of options.systems) await systems[name].prepare();
for (let round = 1; round <= options.rounds; round += 1) {
    for (const name of options.cases) {
        for (const system of options.systems.map((system) => systems[system]).filter((system) => canDo(system, name))) {
            const of = ((results[name] ??= {})[system.name] ??= []);
            const said = `round ${round}  ${name.padEnd(12)}${system.name.padEnd(20)}`;
            try {
                const one = await cases[name].measure(system, options);
                of.push(one);
                console.error(`${said}${shortly(one)}`);
            } catch (error) {
                // A system that stalls has no figure; the others still have theirs.
                console.error(`${said}no figure: ${error.message}`);
            }
        }
    }
}
machine.load.push(load());

function canDo(system, name) {
    const { needs } = cases[name];
    return !needs || system.can.includes(needs);
}

function shortly({ perSecond, p50, p99 }) {
    const rate = perSecond === undefined ? [] : [`${perSecond.toFixed(0)}/s`];
    const waits = p50 === undefined ? [] : [`p50 ${p50.toFixed(1)} p99 ${p99.toFixed(1)} ms`];
    return [...rate, ...waits].join("  ");
}

const rows = summarise(results);
if (rows.length > 0) print(rows, ["case", "system", "note"]);
console.log(`\n${machine.cores} cores (${machine.cpu}), load before and after: ${machine.load.join(", ")}`);
if (options.statements) printStatements();

function printStatements() {
    for (const [name, bySystem] of Object.entries(results)) {
        for (const [system, rounds] of Object.entries(bySystem)) {
            const { statements, count } = rounds.at(-1) ?? {};
            if (!statements) continue;
            console.log(`\n${name}, ${system}: statements by time, last round`);
            const rows = statements.map((s) => ({
                "ms in all": s.total_ms.toFixed(0),
                calls: s.calls,
                "rows a call": (s.rows / s.calls).toFixed(1),
                "µs a job": ((s.total_ms * 1000) / count).toFixed(1),
                "WAL a job": (s.wal_bytes / count).toFixed(0),
                statement: s.query.trim().slice(0, 90),
            }));
            print(rows, ["statement"]);
        }
    }
}

writeFileSync(options.output, JSON.stringify({ options, machine, rows, results }, null, 1));
const drawn = chart(results);
const charts = drawn ? ["bench/results/latest.svg", ...(options.chart ? [options.chart] : [])] : [];
for (const file of charts) writeFileSync(file, drawn);
if (options.chart && !drawn) console.log("\nno chart: none of the cases is a drain");
console.log(`\nwritten to ${[options.output, ...charts].join(", ")}`);
