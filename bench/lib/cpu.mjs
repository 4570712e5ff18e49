// CPU time by group of processes, from /proc: a process, or a server with all its children.
import { readFileSync, readdirSync } from "node:fs";

const MICROS_PER_TICK = 10_000;

function stat(pid) {
    try {
        const text = readFileSync(`/proc/${pid}/stat`, "utf8");
        const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number);
        return { pid: Number(pid), parent: fields[1], own: fields[11] + fields[12], ended: fields[13] + fields[14] };
    } catch {
        return undefined; // it has ended meanwhile
    }
}

/** Microseconds used so far by the process and its children, ended ones included. */
export function used(root) {
    const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(stat).filter(Boolean);
    const within = new Set([root]);
    for (let grew = true; grew; ) {
        const found = all.filter((p) => within.has(p.parent) && !within.has(p.pid));
        found.forEach((p) => within.add(p.pid));
        grew = found.length > 0;
    }
    const ticks = all.filter((p) => within.has(p.pid)).reduce((sum, p) => sum + p.own + p.ended, 0);
    return ticks * MICROS_PER_TICK;
}
