// Running tasks, flows on Spark, deliveries and workers.

import { fill, make } from "./dom.js";
import { ago, count, duration, moment, plural, rate } from "./format.js";
import { Table } from "./table.js";

const LONG_SECONDS = 300;

const seconds = (from, to) => Math.max(0, (to - from) / 1e6);

export const runningTable = (page) => new Table({
  id: (task) => `${task.first}\n${task.worker}\n${task.group}`,
  label: "Running tasks",
  sort: { id: "duration", down: true },
  empty: { key: () => "", fill: () => make("p", { class: "empty", text: "Nothing is out with workers." }) },
  columns: [
    {
      id: "task", title: "Task", key: (t) => `${t.first} ${t.count}`, order: (t) => t.first,
      fill: (t) => [
        make("button", { type: "button", class: "link id", text: `…${t.first.slice(-8)}`, title: t.first, onclick: () => page.showMessage(t.first) }),
        t.count > 1 && make("span", { class: "dim", text: ` +${count(t.count - 1)}` }),
      ],
    },
    { id: "queue", title: "Queue", class: "name", key: (t) => t.queue, order: (t) => t.queue },
    { id: "action", title: "Action", class: "name", key: (t) => [t.flow.name, t.flow.action].filter(Boolean).join(" · ") || "–", order: (t) => t.flow.action ?? "" },
    {
      id: "duration", title: "Duration", number: true, key: (t) => duration(seconds(t.since, page.now)), order: (t) => seconds(t.since, page.now),
      kind: (t) => (seconds(t.since, page.now) > LONG_SECONDS ? "late" : ""),
    },
    { id: "started", title: "Started", number: true, class: "age", key: (t) => ago(seconds(t.since, page.now)), order: (t) => t.since, hint: (t) => moment(t.since) },
    { id: "attempts", title: "Attempts", number: true, key: (t) => count(t.attempts), order: (t) => t.attempts },
    { id: "worker", title: "Worker", class: "name", key: (t) => t.worker || "–", order: (t) => t.worker },
  ],
});

export const longRunning = (tasks, now) => tasks.filter((task) => seconds(task.since, now) > LONG_SECONDS).length;

export const flowsTable = (page) => new Table({
  id: (flow) => `${flow.flow}\n${flow.queue}\n${flow.group}`,
  label: "Flows on Spark",
  sort: { id: "lag", down: true },
  columns: [
    { id: "flow", title: "Flow", class: "name strong", key: (f) => f.flow, order: (f) => f.flow },
    {
      id: "state", title: "State", key: (f) => f.state ?? "", order: (f) => f.state ?? "",
      fill: (f) => [make("span", { class: "mode", "data-mode": f.state ?? "idle", text: flowState(f)[0], title: flowState(f)[1] })],
    },
    { id: "queue", title: "Reads", class: "name", key: (f) => `${f.queue} · ${f.group}`, order: (f) => f.queue },
    { id: "lag", title: "Lag", number: true, about: "Messages that it has not read yet", key: (f) => lagText(page, f), order: (f) => page.group(f)?.ready ?? null },
    { id: "rate", title: "Rows/s", number: true, key: (f) => rate(page.group(f)?.out_rate), order: (f) => page.group(f)?.out_rate ?? null },
    { id: "in", title: "Rows in", number: true, key: (f) => count(f.rows_in), order: (f) => f.rows_in },
    { id: "written", title: "Rows out", number: true, key: (f) => count(f.rows_out), order: (f) => f.rows_out },
    {
      id: "dead", title: "Given up", number: true, key: (f) => count(f.dead), order: (f) => f.dead, kind: (f) => (f.dead ? "late" : "zero"),
      fill: (f) => [f.dead ? make("button", { type: "button", class: "link", text: count(f.dead), title: "Why, is said by its dead letters", onclick: () => page.showLetters(f) }) : "0"],
    },
    { id: "batch", title: "Last batch", number: true, class: "age", key: (f) => (f.published_at ? ago(seconds(f.published_at, page.now)) : "none yet"), order: (f) => f.published_at },
    { id: "why", title: "Last error", class: "why", key: (f) => f.error || "–" },
  ],
});

const STATES = {
  running: ["running", "It reads its queue"],
  failed: ["restarting", "It failed, and is started again"],
  waiting: ["waiting", "It is about to be started"],
  done: ["done", "It had nothing more to do"],
};

const flowState = (flow) => STATES[flow.state] ?? ["–", "No pipeline says how it is"];

/** The programs on Spark that `forebay up` keeps. */
export const sparkPrograms = (programs) => programs.filter((each) => PROGRAMS[each.name]);

const PROGRAMS = { pipeline: "The pipeline", snapshot: "Rich series" };

const programText = (program, now) => {
  if (program.state === "waiting") return `tried again in ${duration(seconds(now, program.again_at))}: ${program.reason}`;
  return program.reason ?? "";
};

export const showPrograms = (node, programs, now) => {
  fill(node, JSON.stringify(programs.map((each) => [each.name, each.state, programText(each, now)])), () => programs.map((each) => make("li", {},
    make("span", { class: "mode", "data-mode": each.state, text: each.state }),
    make("b", { text: PROGRAMS[each.name] }),
    make("span", { class: "dim", text: programText(each, now) && ` · ${programText(each, now)}` }))));
};

/** What the flows' summary says of those that are in trouble, or not there yet. */
export const flowsNote = (flows, programs) => {
  const restarting = flows.filter((flow) => flow.state === "failed").length;
  const coming = programs.filter((each) => !["running", "done"].includes(each.state)).map((each) => `${PROGRAMS[each.name].toLowerCase()}: ${each.state}`);
  return [restarting && `${count(restarting)} restarting`, ...coming].filter(Boolean).join(", ");
};

const lagText = (page, flow) => {
  const found = page.group(flow);
  return found ? count(found.ready) : "–";
};

const breakerOf = (destination) => {
  if (destination.pause) return "paused";
  const states = destination.reports.map((report) => report.breaker);
  return ["open", "half_open", "closed"].find((state) => states.includes(state)) ?? "unknown";
};

const sum = (destination, name) => destination.reports.reduce((all, report) => all + report[name], 0);

const BREAKERS = {
  closed: ["delivering", "The breaker is closed: requests go through"],
  half_open: ["probing", "The breaker is half open: one request tries again"],
  open: ["down", "The breaker is open: the destination is left alone for a while"],
  paused: ["paused", "Nothing is sent until it is resumed"],
  unknown: ["silent", "No process says how it is"],
};

export const deliveriesTable = (page) => new Table({
  id: (destination) => destination.name,
  label: "Deliveries",
  sort: { id: "name", down: false },
  columns: [
    { id: "name", title: "Destination", class: "name strong", key: (d) => d.name, order: (d) => d.name, hint: (d) => d.reports[0]?.url ?? "" },
    {
      id: "breaker", title: "State", key: breakerOf, order: breakerOf,
      fill: (d) => [make("span", { class: "mode", "data-mode": breakerOf(d), text: BREAKERS[breakerOf(d)][0], title: BREAKERS[breakerOf(d)][1] })],
    },
    { id: "queue", title: "Queue", class: "name", key: (d) => d.reports[0]?.queue ?? "–", order: (d) => d.reports[0]?.queue ?? "" },
    { id: "backlog", title: "Backlog", number: true, key: (d) => backlogText(page, d), order: (d) => page.group(d.reports[0])?.ready ?? null },
    { id: "hand", title: "In hand", number: true, key: (d) => count(sum(d, "in_hand")), order: (d) => sum(d, "in_hand") },
    { id: "delivered", title: "Delivered", number: true, key: (d) => count(sum(d, "delivered")), order: (d) => sum(d, "delivered") },
    { id: "failed", title: "Failed", number: true, key: (d) => count(sum(d, "failed")), order: (d) => sum(d, "failed"), kind: (d) => (sum(d, "failed") ? "" : "zero") },
    { id: "why", title: "Last failure", class: "why", key: (d) => d.pause?.reason || d.reports.map((r) => r.last_failure).find(Boolean) || "–" },
    {
      id: "do", title: "", key: (d) => String(Boolean(d.pause)),
      fill: (d) => [make("button", { type: "button", text: d.pause ? "Resume" : "Pause", onclick: () => (d.pause ? page.resumeDelivery(d) : page.pauseDelivery(d)) })],
    },
  ],
});

const backlogText = (page, destination) => {
  const found = destination.reports.length ? page.group(destination.reports[0]) : null;
  return found ? count(found.ready) : "–";
};

export const troubled = (destinations) => destinations.filter((each) => breakerOf(each) !== "closed").length;

/** A row for each queue of each worker. */
export const workerRows = (crew) => crew.workers.flatMap((worker) => {
  const told = crew.instructions[worker.worker];
  return Object.entries(worker.queues).map(([queue, report]) => ({
    ...report, worker: worker.worker, queue, group: worker.group,
    told: told?.processors[queue] ?? null, manager: told?.manager ?? null,
  }));
});

export const workersTable = () => new Table({
  id: (row) => `${row.worker}\n${row.queue}`,
  label: "Workers",
  sort: { id: "worker", down: false },
  columns: [
    { id: "worker", title: "Worker", class: "name strong", key: (w) => w.worker, order: (w) => w.worker },
    { id: "queue", title: "Queue", class: "name", key: (w) => w.queue, order: (w) => w.queue },
    { id: "processors", title: "Processors", number: true, key: (w) => `${count(w.processors)} of ${count(w.processors_max)}`, order: (w) => w.processors },
    {
      id: "told", title: "Told", number: true, about: "How many the Manager wants", key: (w) => (w.told === null ? "–" : count(w.told)), order: (w) => w.told,
      hint: (w) => (w.manager ? `by ${w.manager}` : "No Manager has told it anything lately"), kind: (w) => (w.told !== null && w.told !== w.processors ? "late" : ""),
    },
    { id: "hand", title: "In hand", number: true, key: (w) => count(w.in_progress), order: (w) => w.in_progress },
    { id: "processed", title: "Processed", number: true, key: (w) => count(w.processed), order: (w) => w.processed },
    { id: "errors", title: "Errors", number: true, key: (w) => count(w.errors), order: (w) => w.errors, kind: (w) => (w.errors ? "late" : "zero") },
    { id: "pace", title: "Per task", number: true, key: (w) => (w.seconds_per_task === null ? "–" : pace(w.seconds_per_task)), order: (w) => w.seconds_per_task },
  ],
});

const pace = (time) => (time < 1 ? `${(time * 1000).toPrecision(3)} ms` : `${time.toPrecision(3)} s`);

export const crewNote = (crew) => (crew.lead.manager ? `led by ${crew.lead.manager}` : `${plural(crew.workers.length, "worker")}, no Manager leads`);
