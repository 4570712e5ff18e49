// The processes under test: started with an environment of their own, ended with us.
import { execFileSync, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const work = () => process.env.BENCH_DIR;
const STOP_MS = 10_000;

const surroundings = (env) => ({ env: { PATH: process.env.PATH, ...env }, cwd: work() });

// A bench that is told to end leaves nothing running: what it started ends in its "exit" handlers.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));

/** Runs a command to its end, such as a migration. */
export function run([program, ...args], env) {
    execFileSync(program, args, { ...surroundings(env), stdio: ["ignore", "ignore", "inherit"] });
}

/** Starts a worker; its output goes to NAME.log in the bench's directory. */
export function start(name, [program, ...args], env) {
    const log = openSync(join(work(), `${name}.log`), "a");
    const child = spawn(program, args, { ...surroundings(env), stdio: ["ignore", log, log] });
    closeSync(log);
    let how;
    const ended = new Promise((resolve) => {
        child.on("exit", (code, signal) => resolve((how = code ?? signal)));
        child.on("error", (error) => resolve((how = error.message)));
    });
    const kill = () => child.kill("SIGKILL");
    process.on("exit", kill);
    ended.then(() => process.off("exit", kill));
    return {
        pid: child.pid,
        /** Throws if it has ended by itself. */
        assertRuns() {
            if (how === undefined) return;
            throw new Error(`${name} ended by itself (${how}); its last words:\n${lastWords(name)}`);
        },
        async stop() {
            child.kill("SIGTERM");
            const late = setTimeout(kill, STOP_MS);
            await ended;
            clearTimeout(late);
        },
    };
}

const lastWords = (name) => execFileSync("tail", ["-n", "5", join(work(), `${name}.log`)], { encoding: "utf8" });

/** A port that nobody uses now. */
export const freePort = () =>
    new Promise((resolve) => {
        const server = createServer().listen(0, "127.0.0.1", () => {
            const { port } = server.address();
            server.close(() => resolve(port));
        });
    });
