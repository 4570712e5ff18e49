// Shares of a core that processes use over some seconds, each with its children: node idle.mjs SECONDS NAME=PID …
// The last line is their sum over all but those whose names are in brackets.
import { setTimeout as sleep } from "node:timers/promises";
import { used } from "../cpu.mjs";

const [seconds, ...given] = process.argv.slice(2);
const groups = given.map((one) => one.split("=")).map(([name, pid]) => ({ name, pid: Number(pid) }));
const began = performance.now();
for (const group of groups) group.before = used(group.pid);
await sleep(Number(seconds) * 1000);
const elapsed = (performance.now() - began) * 1000;
const percent = (micros) => `${((100 * micros) / elapsed).toFixed(2)} %`;
for (const group of groups) group.micros = used(group.pid) - group.before;
const counted = groups.filter(({ name }) => !name.startsWith("("));
console.log(groups.map(({ name, micros }) => `${name} ${percent(micros)}`).join(", "));
console.log(percent(counted.reduce((sum, { micros }) => sum + micros, 0)));
