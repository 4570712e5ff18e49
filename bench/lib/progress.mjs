// Nobody waits for ever: a system that stalls has no figure.

const STALL_MS = 60_000;

/** Throws if `since` is a minute ago; `said` tells how far the system came. */
export function assertMoves(system, since, said) {
    if (performance.now() - since > STALL_MS) throw new Error(`${system.name}: ${said}, then nothing for a minute`);
}
