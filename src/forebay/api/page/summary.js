// What is true of all queues together: numbers, the books, and what is wrong.

import { fill, make, one, say } from "./dom.js";
import { ago, bytes, clock, count, duration, plural, rate } from "./format.js";
import { plot } from "./plot.js";

const total = (queues, name) => queues.reduce((all, queue) => all + (queue[name] ?? 0), 0);

const TILES = [
  ["ready", "Ready", "Can be taken now, warm and cold"],
  ["leased", "Leased", "Handed out, and not settled yet"],
  ["delayed", "Delayed", "Their start time, or their next attempt, is to come"],
  ["dead", "Dead", "Given up: see the dead letters below"],
];

export const showTotals = (node, queues, plots) => {
  const points = plots.sum();
  const key = JSON.stringify([...TILES.map(([name]) => total(queues, name)), total(queues, "in_rate"), total(queues, "out_rate"), plots.version]);
  fill(node, key, () => [
    ...TILES.map(([name, title, about]) => tile(title, count(total(queues, name)), about, name === "dead" && total(queues, name) ? "late" : "")),
    ...[["in", "In", "Accepted a second"], ["out", "Out", "Done a second"]].map(([name, title, about]) => {
      const node = tile(`${title} /s`, rate(total(queues, `${name}_rate`)), about);
      node.append(plot(points, 140, 34, `${about}, over the last 5 minutes`, name));
      return node;
    }),
  ]);
};

const tile = (title, text, about, kind = "") =>
  make("div", { class: "tile", title: about, "data-kind": kind }, make("span", { class: "dim", text: title }), make("b", { text }));

export const showLedger = (node, ledger) => {
  node.dataset.state = !ledger ? "unknown" : ledger.difference ? "off" : "fine";
  if (!ledger) say(node, "");
  else if (!ledger.difference) say(node, `The books balance: ${count(ledger.accepted)} accepted, every one accounted for${ledger.spooled ? `, ${count(ledger.spooled)} of them on this server's disk` : ""}.`);
  else {
    const where = ledger.differences.slice(0, 3).map((each) => `${each.queue} · ${each.group}: ${count(each.difference)}`).join(", ");
    say(node, `The books don't balance. Unaccounted for: ${where}${ledger.differences.length > 3 ? " …" : ""}. See forebay ledger.`);
  }
};

const spoolText = (spool) => {
  const parts = [`${plural(spool.pending, "message")} on this server's disk (${bytes(spool.bytes)})`];
  if (spool.settlements) parts.push(plural(spool.settlements, "outcome"));
  if (spool.rate) parts.push(`${rate(spool.rate)}/s go to the log, ${duration(spool.seconds_left ?? 0)} left`);
  return parts.join("; ");
};

/** What is wrong: [state, title, text], the worst first. */
export const troubles = (overview) => {
  const { spool, at } = overview;
  const found = [];
  if (overview.log) {
    const since = spool && !spool.healthy ? ` for ${duration((at - spool.since) / 1e6)}` : "";
    found.push(["bad", `The log has been away${since}`, `${overview.log}. ${spool ? `Pushes are kept: ${spoolText(spool)}.` : "Pushes are refused."}`]);
  } else if (spool?.pending) {
    found.push(["warn", "The log is back, and the spool drains", `${spoolText(spool)}.`]);
  }
  if (spool?.held && !overview.log) found.push(["warn", "Pushes are held back", spool.held]);
  if (spool?.refused) found.push(["bad", "The spool takes no more", spool.refused]);
  if (spool?.failed) found.push(["warn", "Some were set aside", `${plural(spool.failed, "message or outcome", "messages and outcomes")} could not be brought to the log: see forebay spool.`]);
  if (overview.warm) found.push(["warn", "The shared warm tier is away", `This server works from its own memory: ${overview.warm}`]);
  if (overview.stale && overview.counted_at) {
    found.push(["warn", "The numbers are old", `They were counted ${ago((at - overview.counted_at) / 1e6)}, at ${clock(overview.counted_at)}.`]);
  }
  for (const { part, reason } of overview.problems) {
    if (!(part === "queues" && !overview.counted_at)) found.push(["warn", `No news of ${part}`, reason]);
  }
  if (overview.queues_omitted) found.push(["info", "There are more queues", `${plural(overview.queues_omitted, "group")} with less waiting are left out here; /metrics has the first 10,000.`]);
  return found;
};

export const showBanners = (node, found) => {
  fill(node, JSON.stringify(found), () => found.map(([state, title, text]) =>
    make("div", { class: "banner", "data-state": state }, make("b", { text: title }), make("span", { text }))));
};

const STATES = {
  connecting: "connecting", live: "live", polling: "live, every 5 s", paused: "paused while hidden", disconnected: "disconnected",
};

export const showState = (state, overview) => {
  const node = one("#state");
  node.dataset.state = overview?.stale && overview.counted_at && ["live", "polling"].includes(state) ? "stale" : state;
  document.body.dataset.state = node.dataset.state;
  say(one("#state-text"), node.dataset.state === "stale" ? "stale" : STATES[state]);
  node.title = overview ? `Forebay ${overview.server}` : "";
};
