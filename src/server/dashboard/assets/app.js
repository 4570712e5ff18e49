// What makes the pages quicker: live updates, keys, the theme, tooltips. Everything works without it, only more slowly.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const say = (text) => { $("#said").textContent = text; };

// ---- Live: the server sends the parts of the page that changed.

const live = { button: $("#live"), url: document.body.dataset.live, source: null, paused: false, tries: 0, silence: null };

function show(state, text) {
  live.button.dataset.state = state;
  $("span", live.button).textContent = text;
  live.button.setAttribute("aria-pressed", String(live.paused));
}

function stop() {
  live.source?.close();
  live.source = null;
}

function start() {
  stop();
  if (live.paused || document.hidden || !live.url) return;
  const source = (live.source = new EventSource(live.url));
  source.addEventListener("parts", (event) => {
    live.tries = 0;
    listen();
    update(JSON.parse(event.data));
    // The server says above the page that its values are not of now.
    if ($("#stale")?.firstElementChild) show("lost", "Not live, old values");
    else show("live", "Live");
  });
  source.addEventListener("alive", listen);
  source.addEventListener("error", lose);
  listen();
}

// The server sends something every two seconds; a link can break without a word.
function listen() {
  clearTimeout(live.silence);
  live.silence = setTimeout(() => live.source && lose(), 10000);
}

async function lose() {
  stop();
  live.tries += 1;
  show("lost", "Not live, trying again");
  const isOver = await isLoggedOut();
  if (live.paused) return;
  if (isOver) return show("lost", "Logged out, reload to log in");
  setTimeout(() => !live.source && start(), Math.min(1000 * 2 ** live.tries, 15000));
}

// Whether the server leads to its login: a session that is over does not come back by itself.
async function isLoggedOut() {
  const asked = { method: "HEAD", redirect: "manual", headers: { Accept: "text/html" }, signal: AbortSignal.timeout(5000) };
  return fetch(location.href, asked).then((answer) => answer.type === "opaqueredirect", () => false);
}

function update(parts) {
  for (const [id, html] of parts) {
    const old = document.getElementById(id);
    if (!old) return location.reload();
    const fresh = old.cloneNode(false);
    fresh.innerHTML = html;
    const before = $$("[data-say]", old).map((node) => node.dataset.say).join();
    morph(old, fresh);
    const after = $$("[data-say]", old).map((node) => node.dataset.say).join();
    if (before !== after) say(after);
  }
  mark();
}

// Changes `old` into `fresh` in place: what the reader opened, typed, focused or selected stays.
function morph(old, fresh) {
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open" && name !== "class") old.removeAttribute(name);
  const nodes = [...fresh.childNodes];
  nodes.forEach((node, at) => {
    const mine = old.childNodes[at];
    if (!mine) old.append(node);
    else if (mine.nodeType !== node.nodeType || mine.nodeName !== node.nodeName || (mine.id || "") !== (node.id || "")) mine.replaceWith(node);
    else if (node.nodeType !== Node.ELEMENT_NODE) { if (mine.data !== node.data) mine.data = node.data; }
    else if (!mine.isEqualNode(node)) morph(mine, node);
  });
  while (old.childNodes.length > nodes.length) old.lastChild.remove();
}

function toggleLive() {
  live.paused = !live.paused;
  if (live.paused) { stop(); show("paused", "Paused"); } else { show("", "Connecting"); start(); }
  say(live.paused ? "Live updates are paused" : "Live updates go on");
}

if (live.url) {
  live.button.classList.remove("hide");
  live.button.addEventListener("click", toggleLive);
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && start());
  start();
}

// ---- The theme: as the system has it, light, or dark.

$("#theme")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  document.cookie = `outboxd_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  say(`${root.dataset.theme} theme`);
});

// On a narrow screen the pages stand in one line: the one that is open comes into sight.
$(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// ---- Keys.

const rows = () => $$("[data-row]");
let at = -1;

function mark() {
  rows().forEach((row, index) => row.classList.toggle("on", index === at));
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  at = Math.max(0, Math.min(all.length - 1, at + step));
  mark();
  $("a", all[at])?.focus();
  all[at].scrollIntoView({ block: "nearest" });
}

const PLACES = { n: "/", l: "/notifications", d: "/dead", c: "/channels", t: "/topics", s: "/schedules", e: "/events", i: "/instances", b: "/bulk", a: "/audit" };
const KEYS = {
  "/": () => $("#q")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  p: () => live.url && toggleLive(),
  "?": () => $("#keys").showModal(),
  g: () => { pending = setTimeout(() => (pending = null), 1500); },
};
let pending = null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest("input, textarea, select");
  if (event.key === "Escape") {
    $$("details.confirm[open]").forEach((open) => (open.open = false));
    if (field) field.blur();
    return;
  }
  if (field || $("dialog[open]")) return;
  if (pending) {
    clearTimeout(pending);
    pending = null;
    if (PLACES[event.key]) { event.preventDefault(); location.assign(PLACES[event.key]); }
    return;
  }
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("#help")) $("#keys").showModal();
  // A second popover closes the first.
  $$("details.confirm[open]").forEach((open) => { if (!open.contains(event.target)) open.open = false; });
  const row = event.target.closest("[data-row]");
  if (row && !event.target.closest("a, button, summary, details, form, input") && !getSelection().toString()) $("a", row)?.click();
  const copy = event.target.closest("[data-copy]");
  if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => say("copied"));
});

// A form is sent once.
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented) return;
  setTimeout(() => $$("button", event.target).forEach((button) => (button.disabled = true)));
});
addEventListener("pageshow", (event) => event.persisted && $$("button[disabled]").forEach((button) => (button.disabled = false)));

// A bulk action starts once its number was typed.
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-expect]");
  if (form) $("button", form).disabled = event.target.value.replace(/[\s,.]/g, "") !== form.dataset.expect;
});
$$("form[data-expect] button").forEach((button) => (button.disabled = true));

// ---- Times in the reader's own zone, and charts that tell their minute.

document.addEventListener("mouseover", (event) => {
  const time = event.target.closest?.("time[datetime]");
  if (time && !time.dataset.local) {
    time.dataset.local = "yes";
    time.title += `\n${new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })}`;
  }
});

document.addEventListener("pointermove", (event) => {
  const svg = event.target.closest?.("svg[data-points]");
  $$(".tip").forEach((tip) => tip.remove());
  if (!svg) return;
  const points = svg.dataset.points.split("|");
  const box = svg.getBoundingClientRect();
  const index = Math.max(0, Math.min(points.length - 1, Math.floor(((event.clientX - box.left) / box.width) * points.length)));
  const card = svg.closest(".chart");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.textContent = points[index].replaceAll(";", "\n");
  card.append(tip);
  const left = event.clientX - card.getBoundingClientRect().left + 14;
  tip.style.left = `${Math.min(left, card.clientWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${box.top - card.getBoundingClientRect().top + 4}px`;
});
