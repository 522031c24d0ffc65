// The page: what is shown, and what keys and buttons do.

import {
  crewNote, deliveriesTable, flowsNote, flowsTable, longRunning, runningTable, showPrograms, sparkPrograms, troubled, workerRows, workersTable,
} from "./boards.js";
import { Live, get, offerKey, onKeyWanted, path, post } from "./connection.js";
import { ask, attempt, confirm, dialog, toast } from "./dialog.js";
import { make, one, say } from "./dom.js";
import { clock, count, plural } from "./format.js";
import { Letters } from "./letters.js";
import { findMessage, showMessage } from "./message.js";
import { Plots } from "./plot.js";
import { filtered, queuesTable, rowsOf } from "./queues.js";
import { showBanners, showLedger, showState, showTotals, troubles } from "./summary.js";

const TICK_MS = 1_000;
const kept = new URLSearchParams(location.hash.slice(1));

const page = {
  now: Date.now() * 1000,
  skew: 0,
  overview: null,
  queues: [],
  groups: new Map(),
  plots: new Plots(),
  filter: kept.get("q") ?? "",
  grouped: kept.get("grouped") === "1",
  sort: { id: (kept.get("sort") ?? "-total").replace(/^-/, ""), down: (kept.get("sort") ?? "-total").startsWith("-") },
  connection: "connecting",
  why: "",

  group: (where) => (where ? page.groups.get(Plots.key(where.queue, where.group)) : undefined),
  onsort: (sort) => { page.sort = sort; keep(); },
  setFilter(text) {
    page.filter = text;
    one("#filter").value = text;
    keep();
    showQueues();
  },
  showMessage,
  showLetters(where) {
    one("#dead").open = true;
    one("#dead").scrollIntoView({ block: "start" });
    letters.choose(where);
  },
  pauseQueue: (row) => attempt(async () => {
    if (!(await confirm(`Pause ${row.queue}?`, "Nothing more is handed out from it until it is resumed. Pushes go on.", "Pause"))) return;
    await post(path("v1", "queues", row.queue, "pause"));
    toast(`${row.queue} is paused.`, { undo: () => page.resumeQueue(row) });
  }),
  resumeQueue: (row) => attempt(async () => {
    await post(path("v1", "queues", row.queue, "resume"));
    toast(`${row.queue} hands out again.`);
  }),
  pauseDelivery: (destination) => attempt(async () => {
    const reason = await ask(`Pause ${destination.name}?`, "Nothing is sent to it until it is resumed. Why?", { verb: "Pause", value: "paused on the page" });
    if (reason === null) return;
    await post(path("v1", "destinations", destination.name, "pause"), { reason });
    toast(`${destination.name} is paused.`, { undo: () => page.resumeDelivery(destination) });
  }),
  resumeDelivery: (destination) => attempt(async () => {
    await post(path("v1", "destinations", destination.name, "resume"));
    toast(`${destination.name} gets messages again.`);
  }),
};

const tables = {
  queues: queuesTable(page),
  running: runningTable(page),
  flows: flowsTable(page),
  deliveries: deliveriesTable(page),
  workers: workersTable(),
};
for (const [name, table] of Object.entries(tables)) one(`#${name} .scroller`).replaceChildren(table.node);
const letters = new Letters(one("#dead .body"), page);

const keep = () => {
  const said = new URLSearchParams();
  if (page.filter) said.set("q", page.filter);
  if (page.grouped) said.set("grouped", "1");
  if (page.sort.id !== "total" || !page.sort.down) said.set("sort", `${page.sort.down ? "-" : ""}${page.sort.id}`);
  history.replaceState(null, "", said.size ? `#${said}` : location.pathname);
};

const showQueues = () => {
  const rows = rowsOf(page.queues, page.grouped);
  const some = filtered(rows, page.filter);
  tables.queues.hide(page.grouped ? ["flow", "type", "action"] : []);
  tables.queues.show(some);
  say(one("#queues-count"), some.length === rows.length ? count(rows.length) : `${count(some.length)} of ${count(rows.length)}`);
};

const showSection = (name, table, rows, note, hidden = false) => {
  const section = one(`#${name}`);
  section.hidden = hidden;
  say(one(".count", section), count(rows.length));
  say(one(".note", section), note);
  if (section.open) table.show(rows);
};

const showSections = () => {
  const { running, flows, destinations, crew } = page.overview;
  const programs = sparkPrograms(page.overview.programs);
  const long = longRunning(running, page.now);
  showSection("running", tables.running, running, long ? `${plural(long, "task")} for more than 5 minutes` : "");
  one("#running .note").dataset.kind = long ? "late" : "";
  showSection("flows", tables.flows, flows, flowsNote(flows, programs), !flows.length && !programs.length);
  showPrograms(one("#flows .programs"), programs, page.now);
  one("#flows .scroller").hidden = !flows.length;
  const bad = troubled(destinations);
  showSection("deliveries", tables.deliveries, destinations, bad ? `${count(bad)} not delivering` : "", !destinations.length);
  one("#deliveries .note").dataset.kind = bad ? "late" : "";
  showSection("workers", tables.workers, crew ? workerRows(crew) : [], crew ? crewNote(crew) : "", !crew?.workers.length);
  say(one("#dead .count"), count(page.queues.reduce((all, queue) => all + queue.dead, 0)));
  if (one("#dead").open) letters.show(page.queues);
};

const showConnection = () => {
  showState(page.connection, page.overview);
  const found = page.overview ? troubles(page.overview) : [];
  if (page.connection === "disconnected") {
    const since = page.overview ? ` The numbers are those of ${clock(page.overview.at)}.` : "";
    found.unshift(["bad", "Disconnected", `${page.why}. It is tried again.${since}`]);
  }
  showBanners(one("#banners"), found);
};

const show = (overview) => {
  page.overview = overview;
  page.skew = overview.at - Date.now() * 1000;
  page.now = overview.at;
  if (overview.queues) {
    page.queues = overview.queues;
    page.groups = new Map(overview.queues.map((queue) => [Plots.key(queue.queue, queue.group), queue]));
    if (overview.counted_at) page.plots.add(overview.counted_at / 1e6, overview.queues);
  }
  document.body.classList.remove("loading");
  showTotals(one("#totals"), page.queues, page.plots);
  showLedger(one("#ledger"), overview.ledger);
  showQueues();
  showSections();
  showConnection();
};

/** Times go on between two overviews, while there is a connection. */
const tick = () => {
  if (!page.overview || !["live", "polling"].includes(page.connection)) return;
  page.now = Date.now() * 1000 + page.skew;
  showQueues();
  if (one("#running").open) tables.running.show(page.overview.running);
};

let plotted = false;
const tell = (state, why = "") => {
  const back = page.connection !== state && state === "live";
  page.connection = state;
  page.why = why;
  showConnection();
  if (back || !plotted) {
    plotted = true;
    if (state !== "disconnected" && state !== "paused") loadPlots();
  }
};

const loadPlots = async () => {
  try {
    page.plots.load((await get("/v1/overview/plots")).plots);
  } catch {
    plotted = false; // the next overview tries again
  }
};

const SHORTCUTS = [
  ["/", "filter"], ["g", "group by action class"], ["f", "find a message"], ["r", "running tasks"], ["d", "dead letters"],
  ["↑ ↓", "go from queue to queue"], ["Enter", "show more of a queue"], ["Esc", "leave, or clear the filter"], ["?", "this"],
];

const help = () => dialog("Keyboard shortcuts", (close) => [
  make("dl", { class: "keys" }, ...SHORTCUTS.flatMap(([key, text]) => [make("dt", {}, make("kbd", { text: key })), make("dd", { text })])),
  make("p", { class: "actions" }, make("button", { type: "button", text: "Close", autofocus: true, onclick: () => close(null) })),
]);

const flip = (name) => {
  const section = one(`#${name}`);
  section.open = !section.open;
  if (section.open) one("summary", section).focus();
};

const group = (grouped) => {
  page.grouped = grouped;
  one("#grouped").checked = grouped;
  keep();
  showQueues();
};

const KEYS = {
  "/": () => one("#filter").focus(),
  g: () => group(!page.grouped),
  f: () => findMessage(),
  r: () => flip("running"),
  d: () => flip("dead"),
  "?": () => help(),
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

one("#filter").addEventListener("input", (event) => page.setFilter(event.target.value));
one("#filter").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    page.setFilter("");
    event.target.blur();
  }
});
one("#grouped").addEventListener("change", (event) => group(event.target.checked));
one("#find-open").addEventListener("click", () => findMessage());
one("#help-open").addEventListener("click", () => help());
for (const section of document.querySelectorAll("main > details")) {
  section.addEventListener("toggle", () => page.overview && showSections());
}

one("#key-open").addEventListener("click", () => offerKey());
onKeyWanted((reason) => ask("This server has keys", reason ?? "Show a key with the scope read; actions need the scope admin. It stays in this page's memory, and is gone with it.", { verb: "Use it", secret: true }),
(declined) => { one("#key-open").hidden = !declined; });

document.body.classList.add("loading");
one("#filter").value = page.filter;
one("#grouped").checked = page.grouped;
tables.queues.hide(page.grouped ? ["flow", "type", "action"] : []);
setInterval(tick, TICK_MS);
new Live(show, tell);
