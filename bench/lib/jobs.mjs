// The job that every system does: one POST of a small JSON body.

export const TEXT = "Your order has been paid and is on its way.";
/** Whom a job is for where the URL does not come from the row. */
export const DEVICE = "device-1";
/** Cases with one topic use the first. */
export const TOPICS = Array.from({ length: 20 }, (_, n) => `bench-${n}`);
/** Jobs written at a time in a preload. */
export const CHUNK = 1000;

/** What job n says. */
export const payload = (n) => ({ n, text: TEXT });
