// The systems under comparison. Each has:
//   name, can            what it is called; which limits it knows ("rateLimit", "maxInFlight")
//   prepare()            creates its database and schema
//   open()               a session that writes jobs and checks whether any is left
//   start(settings)      its worker: { url, fromRow, topics, rateLimit, maxInFlight, httpPort }
import { outboxd } from "./systems/outboxd.mjs";
import { peers } from "./systems/peers.mjs";

const build = () => process.env.BENCH_OUTBOXD;
const before = process.env.BENCH_BEFORE;

const all = [
    outboxd("outboxd-stream", build, "stream"),
    outboxd("outboxd-memory", build, "memory"),
    ...(before ? [outboxd("outboxd-before", () => before, "stream")] : []),
    ...peers,
];

export const systems = Object.fromEntries(all.map((system) => [system.name, system]));
/** The one that the others' rates are given as multiples of. */
export const REFERENCE = "graphile-worker";
