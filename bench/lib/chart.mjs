// The chart for the README: jobs a second of each drain, a panel for each case. Readable on light and dark pages:
// mid-grey text, no background, no fonts of its own.
import { cases } from "./cases.mjs";
import { median } from "./statistics.mjs";

const WIDTH = 720;
const COLUMNS = 2;
const PANEL = WIDTH / COLUMNS;
const LABEL = 128;
const FIGURE = 56;
const BAR = PANEL - LABEL - FIGURE - 16;
const ROW = 20;
const HEAD = 30;
const GAP = 18;
const TEXT = "#7a828b";
const OURS = "#4c8bb5";
const THEIRS = "#a3abb3";

const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const number = (n) => Math.round(n).toLocaleString("en-GB");

/** One bar, longest of its panel `most`. */
function bar([system, rate], index, most) {
    const y = HEAD + index * ROW;
    const width = Math.max(1, (rate / most) * BAR).toFixed(1);
    const fill = system.startsWith("outboxd") ? OURS : THEIRS;
    return `    <text x="${LABEL - 8}" y="${y + 13}" text-anchor="end">${escape(system)}</text>
    <rect x="${LABEL}" y="${y + 2}" width="${width}" height="14" rx="2" fill="${fill}"/>
    <text x="${(LABEL + Number(width) + 6).toFixed(1)}" y="${y + 13}">${number(rate)}</text>`;
}

function panel({ title, rates }, x, y) {
    const most = Math.max(...rates.map(([, rate]) => rate));
    return `  <g transform="translate(${x} ${y})">
    <text x="4" y="16" font-weight="600">${escape(title)}</text>
${rates.map((one, index) => bar(one, index, most)).join("\n")}
  </g>`;
}

/** An SVG of the drains among `results` (case → system → one result a round), or nothing if there are none. */
export function chart(results) {
    const panels = Object.entries(results)
        .filter(([name]) => cases[name].isDrain)
        .map(([name, bySystem]) => ({
            title: cases[name].title,
            rates: Object.entries(bySystem)
                .filter(([, rounds]) => rounds.length > 0)
                .map(([system, rounds]) => [system, median(rounds.map((one) => one.perSecond))]),
        }))
        .filter(({ rates }) => rates.length > 0);
    if (panels.length === 0) return undefined;
    const height = HEAD + Math.max(...panels.map(({ rates }) => rates.length)) * ROW + GAP;
    const top = 26;
    const drawn = panels.map((one, i) => panel(one, (i % COLUMNS) * PANEL, top + Math.floor(i / COLUMNS) * height));
    const whole = top + Math.ceil(panels.length / COLUMNS) * height;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${whole}" viewBox="0 0 ${WIDTH} ${whole}"
     role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="12" fill="${TEXT}">
  <title id="title">Jobs delivered a second, by case and system</title>
  <text x="4" y="14">Jobs a second while a backlog drains. More is better; each case has its own scale.</text>
${drawn.join("\n")}
</svg>
`;
}
