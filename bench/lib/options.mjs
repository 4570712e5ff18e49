// The options of bench/run. As a program it checks them and prints the systems they choose.
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { cases } from "./cases.mjs";
import { systems } from "./systems.mjs";

function fail(message) {
    console.error(`bench/run: ${message}; see bench/run --help`);
    process.exit(2);
}

function choose(list, from, what) {
    return list.split(",").map((name) => {
        if (!Object.hasOwn(from, name)) fail(`no ${what} is called ${name}: there are ${Object.keys(from).join(", ")}`);
        return name;
    });
}

function parse(args) {
    try {
        return parseArgs({
            args,
            options: {
                cases: { type: "string", default: Object.keys(cases).join(",") },
                only: { type: "string", default: Object.keys(systems).join(",") },
                rounds: { type: "string", default: "5" },
                count: { type: "string", default: "20000" },
                rate: { type: "string", default: "200" },
                seconds: { type: "string", default: "10" },
                statements: { type: "boolean", default: false },
                chart: { type: "string" },
                output: { type: "string" },
            },
        }).values;
    } catch (error) {
        return fail(error.message);
    }
}

/** What the arguments ask for. */
export function readOptions(args) {
    const given = parse(args);
    const number = (name, least) => {
        const value = Number(given[name]);
        if (!Number.isInteger(value) || value < least) fail(`--${name} ${given[name]}: give a number from ${least} on`);
        return value;
    };
    const before = process.env.BENCH_BEFORE;
    if (before && !existsSync(before)) fail(`BENCH_BEFORE=${before} is no program: name a build of outboxd`);
    const seconds = number("seconds", 0);
    return {
        cases: choose(given.cases, cases, "case").filter((name) => name !== "paced" || seconds > 0),
        systems: choose(given.only, systems, "system"),
        rounds: number("rounds", 1),
        count: number("count", 100),
        rate: number("rate", 1),
        seconds,
        statements: given.statements,
        chart: given.chart,
        output: given.output,
    };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
    console.log(readOptions(process.argv.slice(2)).systems.join("\n"));
}
