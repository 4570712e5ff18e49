// Medians, percentiles and ranges.

const ascending = (numbers) => numbers.toSorted((a, b) => a - b);

/** The middle one; of an even number the lower of the two. */
export const median = (numbers) => ascending(numbers)[Math.floor((numbers.length - 1) / 2)];

/** The value that this share of the numbers does not exceed. */
export const percentile = (numbers, share) => ascending(numbers)[Math.round((numbers.length - 1) * share)];

/** The most of `times`, in ms and ascending, within any span of `spanMs`. */
export function mostWithin(times, spanMs) {
    let [most, from] = [0, 0];
    times.forEach((at, index) => {
        while (at - times[from] >= spanMs) from += 1;
        most = Math.max(most, index - from + 1);
    });
    return most;
}

/** How many of `times`, in ms and ascending, a span of `spanMs` holds on average, wherever it begins. */
export function meanWithin(times, spanMs) {
    const STEP_MS = 10;
    let [sum, spans, from, to] = [0, 0, 0, 0];
    for (let at = times[0]; at + spanMs <= times.at(-1); at += STEP_MS) {
        while (times[from] < at) from += 1;
        while (to < times.length && times[to] < at + spanMs) to += 1;
        sum += to - from;
        spans += 1;
    }
    return sum / spans;
}
