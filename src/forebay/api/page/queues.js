// The table of queues: a row for each action of each flow, or for each queue where they are grouped.

import { fill, make, say } from "./dom.js";
import { ago, count, duration, plural, rate } from "./format.js";
import { plot, Plots } from "./plot.js";
import { Table } from "./table.js";

const STUCK_SECONDS = 300;
const PATIENCE_SECONDS = 30;
const STEADY = 1.05;
const DEFAULT_GROUP = "workers";
const MODES = {
  warm: "In memory, ready to be handed out at once",
  cold: "Some wait in the log alone: they come into memory as workers ask, and as there is room",
  paused: "Nothing is handed out until it is resumed",
  idle: "Nothing waits, and nothing is out with workers",
};

/** Rows of the table, from an overview. */
export const rowsOf = (queues, grouped) => queues.flatMap((queue) => {
  const whole = { ...queue, id: Plots.key(queue.queue, queue.group), alone: true };
  if (grouped || !queue.flows.length) return [{ ...whole, flow: "", type: "", action: "", oldest: queue.oldest_at }];
  return queue.flows.map((flow) => ({
    ...whole,
    ...flow,
    id: [whole.id, flow.flow, flow.type, flow.action].join("\n"),
    oldest: flow.oldest_at,
    alone: queue.flows.length === 1,
  }));
});

/** Rows that have all words of a filter in some of their texts. */
export const filtered = (rows, text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const all = [row.flow, row.type, row.action, row.queue, row.group, row.mode, row.plugin].join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
};

const age = (row, now) => (row.oldest === null ? null : Math.max(0, (now - row.oldest) / 1e6));

const fillBar = (row) => {
  const part = row.held_max ? Math.min(1, row.held / row.held_max) : 0;
  const bar = make("span", { class: "fill", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.inlineSize = `${(part * 100).toFixed(1)}%`;
  bar.dataset.level = part >= 0.999 ? "full" : part >= 0.8 ? "high" : "fine";
  return bar;
};

const drain = (row, now) => {
  if (!row.ready || row.mode === "paused") return "–";
  if (row.drain_seconds !== null) return duration(row.drain_seconds);
  if (row.in_rate === null) return "–";
  if (!row.out_rate) return age(row, now) > PATIENCE_SECONDS ? "stalled" : "–";
  return row.in_rate > row.out_rate * STEADY ? "growing" : "steady";
};

const columns = (page) => [
  { id: "flow", title: "Flow", key: (r) => r.flow || "–", order: (r) => r.flow, class: "name" },
  { id: "type", title: "Type", key: (r) => r.type.replaceAll("_", " ").toLowerCase() || "–", order: (r) => r.type, class: "type" },
  { id: "action", title: "Action", key: (r) => r.action || "–", order: (r) => r.action, class: "name" },
  {
    id: "queue", title: "Queue", class: "name queue",
    key: (r) => [r.queue, r.group, r.mode].join("\n"), order: (r) => r.queue, hint: (r) => `${r.queue}\nplugin: ${r.plugin}`,
    fill: (r) => [
      make("span", { class: "mode", "data-mode": r.mode, text: r.mode, title: MODES[r.mode] }),
      make("span", { class: "text", text: r.queue }),
      r.group !== DEFAULT_GROUP && make("span", { class: "dim", text: ` · ${r.group}` }),
    ],
  },
  {
    id: "warm", title: "Warm", number: true, about: "Ready in memory; the bar is the fill of its queue against the limit",
    key: (r) => [r.warm, r.held, r.held_max].join(" "), order: (r) => r.warm,
    hint: (r) => `${count(r.held)} of ${count(r.held_max)} in the warm tier, those included that are out with workers`,
    fill: (r) => [make("span", { text: count(r.warm) }), fillBar(r)],
  },
  { id: "cold", title: "Cold", number: true, about: "Waiting in the log alone", key: (r) => count(r.cold), order: (r) => r.cold, kind: (r) => (r.cold ? "cold" : "zero") },
  { id: "total", title: "Total", number: true, key: (r) => count(r.warm + r.cold), order: (r) => r.warm + r.cold, class: "strong" },
  {
    id: "oldest", title: "Oldest", number: true, class: "age",
    key: (r) => (age(r, page.now) === null ? "–" : ago(age(r, page.now))), order: (r) => age(r, page.now),
    kind: (r) => (r.mode !== "paused" && age(r, page.now) > STUCK_SECONDS ? "late" : ""),
  },
  { id: "in", title: "In/s", number: true, key: (r) => rate(r.in_rate), order: (r) => r.in_rate, kind: shared, hint: sharedHint },
  { id: "out", title: "Out/s", number: true, key: (r) => rate(r.out_rate), order: (r) => r.out_rate, kind: shared, hint: sharedHint },
  {
    id: "plot", title: "Last 5 min", class: "plots", key: (r) => `${page.plots.version} ${r.queue} ${r.group}`,
    fill: (r) => [plot(page.plots.points(r.queue, r.group), 96, 24, "In (line) and out (area) over the last 5 minutes")],
  },
  {
    id: "drain", title: "Drains in", number: true, about: "When nothing waits any more, if it goes on like this", key: (r) => drain(r, page.now),
    order: (r) => (r.ready ? r.drain_seconds : 0), kind: (r) => (["growing", "stalled"].includes(drain(r, page.now)) ? "late" : ""),
  },
];

function shared(row) {
  return row.alone ? "" : "shared";
}

function sharedHint(row) {
  return row.alone ? "" : "Of the whole queue, which several flows share";
}

const FACTS = [
  ["ready", "can be taken now"], ["leased", "out with workers"], ["delayed", "for later"], ["dead", "given up"],
  ["spooled", "on this server's disk"], ["done", "finished"], ["accepted", "in all"],
];

const details = (page) => () => {
  let row;
  const figures = FACTS.map(([name, text]) => [name, make("dd"), text]);
  const drawing = make("div");
  const [inRate, outRate, plugin] = ["in", "out", "dim"].map((kind) => make("span", { class: kind }));
  const pause = make("button", { type: "button", onclick: () => (row.mode === "paused" ? page.resumeQueue(row) : page.pauseQueue(row)) });
  const dead = make("button", { type: "button", onclick: () => page.showLetters(row) });
  const node = make("div", { class: "facts" },
    make("dl", {}, ...figures.map(([name, figure, text]) => make("div", {}, make("dt", { text: name, title: text }), figure))),
    make("div", { class: "large" }, drawing, make("p", { class: "legend" }, inRate, outRate, plugin)),
    make("p", { class: "actions" }, pause, dead));
  const update = (shown) => {
    row = shown;
    const all = { ...row, spooled: page.overview.spool?.queues[row.queue] ?? 0 };
    for (const [name, figure] of figures) say(figure, count(all[name]));
    fill(drawing, String(page.plots.version), () => [plot(page.plots.points(row.queue, row.group), 360, 72, `Rates of ${row.queue}`)]);
    say(inRate, `in ${rate(row.in_rate)}/s`);
    say(outRate, `out ${rate(row.out_rate)}/s`);
    say(plugin, `plugin ${row.plugin}`);
    say(pause, row.mode === "paused" ? "Resume" : "Pause");
    say(dead, plural(row.dead, "dead letter"));
    dead.hidden = !row.dead;
  };
  return { node, update };
};

const nothing = (page) => ({
  key: () => (page.overview?.counted_at ? `filter ${page.filter}` : "counting"),
  fill: () => !page.overview?.counted_at
    ? make("p", { class: "empty", text: "The queues are being counted …" })
    : page.filter
    ? make("p", { class: "empty" }, `No queue has “${page.filter}” in it. `, make("button", { type: "button", text: "Clear the filter", onclick: () => page.setFilter("") }))
    : make("div", { class: "empty" }, make("p", { text: "No queues yet. A push makes one:" }),
      make("pre", { text: `curl ${location.origin}/v1/queues/orders/messages \\\n  -H 'Content-Type: application/json' -d '[{"payload": {"order": 1}}]'` })),
});

/** The table; `page` has what rows are shown by: now, plots, filter, and what buttons do. */
export const queuesTable = (page) => new Table({
  columns: columns(page),
  id: (row) => row.id,
  label: "Queues",
  sort: page.sort,
  onsort: page.onsort,
  details: details(page),
  empty: nothing(page),
});
