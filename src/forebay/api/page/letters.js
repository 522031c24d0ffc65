// Dead letters of one queue: read, hand out again, do away with; tried out first, and undone if need be.

import { attempt, confirm, toast } from "./dialog.js";
import { get, path, post } from "./connection.js";
import { fill, make } from "./dom.js";
import { ago, count, moment, plural } from "./format.js";

const PAGE = 50;
const IDS_AT_ONCE = 100_000;

/** The ids of all answers to posts of some ids each. */
const inPortions = async (ids, send) => {
  const found = [];
  for (let at = 0; at < ids.length; at += IDS_AT_ONCE) found.push(...(await send(ids.slice(at, at + IDS_AT_ONCE))).ids);
  return found;
};

export const payloadText = (message) => {
  if (message.payload_base64 !== undefined) return `base64: ${message.payload_base64}`;
  return JSON.stringify(message.payload, null, 2);
};

export class Letters {
  constructor(body, page) {
    this.page = page;
    this.body = body;
    this.chosen = null;
    this.marked = new Set();
    this.letters = [];
    this.next = null;
    this.reason = "";
    this.choices = make("p", { class: "choices", role: "group", "aria-label": "Queues with dead letters" });
    this.list = make("div", { class: "letters" });
    body.replaceChildren(this.choices, this.list);
  }

  /** Show which queues have dead letters. */
  show(queues) {
    const some = queues.filter((queue) => queue.dead > 0).sort((a, b) => b.dead - a.dead);
    const key = JSON.stringify(some.map((q) => [q.queue, q.group, q.dead])) + this.chosenKey;
    fill(this.choices, key, () => some.length
      ? some.map((queue) => make("button", {
        type: "button", class: "chip", "aria-pressed": String(this.chosenKey === keyOf(queue)), onclick: () => this.choose(queue),
      }, make("span", { text: queue.group === "workers" ? queue.queue : `${queue.queue} · ${queue.group}` }), make("b", { text: count(queue.dead) })))
      : [make("span", { class: "empty", text: "There are no dead letters." })]);
  }

  get chosenKey() {
    return this.chosen ? keyOf(this.chosen) : "";
  }

  async choose(queue) {
    this.chosen = { queue: queue.queue, group: queue.group };
    this.marked.clear();
    this.reason = "";
    await this.load();
    this.show(this.page.queues);
  }

  async load(after = "0") {
    const query = new URLSearchParams({ group: this.chosen.group, limit: PAGE, after });
    const found = await attempt(() => get(`${path("v1", "queues", this.chosen.queue, "dead")}?${query}`));
    if (!found) return;
    this.letters = after === "0" ? found.letters : [...this.letters, ...found.letters];
    this.next = found.next ?? null;
    this.draw();
  }

  draw() {
    const marked = this.marked.size;
    const which = marked ? `${count(marked)} marked` : "all";
    const reason = make("input", { type: "search", placeholder: "only if the reason contains …", "aria-label": "Reason contains", value: this.reason });
    reason.addEventListener("input", () => { this.reason = reason.value; });
    const bar = make("p", { class: "actions" },
      make("button", { type: "button", class: "primary", text: `Redrive ${which} …`, onclick: () => this.change("redrive") }),
      make("button", { type: "button", class: "danger", text: `Purge ${which} …`, onclick: () => this.change("purge") }),
      marked ? null : reason);
    const rows = this.letters.map((letter) => this.row(letter));
    const table = make("table", { "aria-label": `Dead letters of ${this.chosen.queue}` },
      make("thead", {}, make("tr", {}, ...["", "Message", "Died", "Attempts", "Reason", "Payload"].map((text) => make("th", { scope: "col", text })))),
      make("tbody", {}, ...rows));
    const more = this.next && make("button", { type: "button", text: "More", onclick: () => this.load(this.next) });
    const shown = rows.length ? make("div", { class: "scroller" }, table) : make("p", { class: "empty", text: "None are left." });
    this.list.replaceChildren(...[bar, shown, more].filter(Boolean));
  }

  row(letter) {
    const box = make("input", { type: "checkbox", "aria-label": `Mark ${letter.id}` });
    box.checked = this.marked.has(letter.id);
    box.addEventListener("change", () => {
      if (box.checked) this.marked.add(letter.id);
      else this.marked.delete(letter.id);
      const at = [...this.list.querySelectorAll("tbody input")].indexOf(box);
      this.draw();
      this.list.querySelectorAll("tbody input")[at]?.focus();
    });
    const text = payloadText(letter);
    const headers = Object.entries(letter.headers ?? {}).map(([name, value]) => `${name}: ${value}`).join("\n");
    return make("tr", {},
      make("td", {}, box),
      make("td", { "data-label": "Message" }, make("button", { type: "button", class: "link id", text: `…${letter.id.slice(-8)}`, title: letter.id, onclick: () => this.page.showMessage(letter.id) })),
      make("td", { "data-label": "Died", class: "age", text: ago((Date.now() * 1000 - letter.died_at) / 1e6), title: moment(letter.died_at) }),
      make("td", { "data-label": "Attempts", class: "number", text: count(letter.attempts) }),
      make("td", { "data-label": "Reason", class: "why", text: letter.reason }),
      make("td", { "data-label": "Payload", class: "payload" }, make("details", {}, make("summary", { text: text.replace(/\s+/g, " ").slice(0, 80) }), make("pre", { text: headers ? `${headers}\n\n${text}` : text }))));
  }

  /** Redrive or purge: tried out, confirmed, done, and undone where somebody wants it. */
  async change(verb) {
    const { queue, group } = this.chosen;
    const route = path("v1", "queues", queue, "dead", verb);
    const which = { group, ...(this.marked.size ? { ids: [...this.marked] } : this.reason ? { reason: this.reason } : {}) };
    await attempt(async () => {
      const tried = await post(route, { ...which, dry_run: true });
      const number = plural(tried.ids.length, "dead letter");
      if (!tried.ids.length) return toast("There is nothing to do.");
      const text = verb === "redrive"
        ? `${number} of ${queue} will be handed out again, as on their first day. You can undo it as long as they wait.`
        : `${number} of ${queue} will be taken off the list. You can undo it.`;
      const done = verb === "redrive" ? "redriven" : "purged";
      if (!(await confirm(`${verb === "redrive" ? "Redrive" : "Purge"} ${number}?`, text, `${verb === "redrive" ? "Redrive" : "Purge"} ${count(tried.ids.length)}`, verb === "purge"))) return;
      // Those that were counted, and none that have died since.
      const changed = await inPortions(tried.ids, (ids) => post(route, { group, ids }));
      toast(`${plural(changed.length, "dead letter")} of ${queue} ${done}.`, { undo: () => this.undo(queue, group, changed) });
      this.marked.clear();
      await this.load();
    });
  }

  async undo(queue, group, ids) {
    const undo = path("v1", "queues", queue, "dead", "undo");
    const back = (await inPortions(ids, (some) => post(undo, { group, ids: some }))).length;
    const gone = ids.length - back;
    toast(`${plural(back, "message")} of ${queue} ${back === 1 ? "is a dead letter" : "are dead letters"} again.${gone ? ` ${count(gone)} had gone on already.` : ""}`);
    if (this.chosen) await this.load();
  }
}

const keyOf = (queue) => `${queue.queue}\n${queue.group}`;
