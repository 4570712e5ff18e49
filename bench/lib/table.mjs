// Tables and figures for people.
import { median } from "./statistics.mjs";

/** The median with its range: "4300 (3250–5900)"; one figure alone has no range. */
export function figure(numbers, digits = 0) {
    if (numbers.length === 0) return "";
    const said = [median(numbers), Math.min(...numbers), Math.max(...numbers)].map((n) => n.toFixed(digits));
    const [middle, least, most] = said;
    return numbers.length === 1 ? middle : `${middle} (${least}–${most})`;
}

/** Prints rows of equal columns; the columns in `left` are flush left. Columns without any content are left out. */
export function print(rows, left) {
    const columns = Object.keys(rows[0] ?? {}).filter((column) => rows.some((row) => row[column] !== ""));
    const widths = columns.map((column) => Math.max(column.length, ...rows.map((row) => String(row[column]).length)));
    const pad = (text, i) => (left.includes(columns[i]) ? text.padEnd(widths[i]) : text.padStart(widths[i]));
    const line = (cells) => cells.map(String).map(pad).join("  ").trimEnd();
    const rule = line(widths.map((width) => "─".repeat(width)));
    console.log(["", line(columns), rule, ...rows.map((row) => line(columns.map((column) => row[column])))].join("\n"));
}
