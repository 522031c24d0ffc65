// A table that is kept up to date in place: rows by key, cells by what they show. So focus and selection stay.

import { fill, make } from "./dom.js";

/** A column: `id`, `title`, `key(row)` what it shows as text, `fill(row)` nodes where text isn't enough,
 * `order(row)` what it is sorted by, `number` for figures, `hint(row)` for a tooltip.
 * `details()` makes what is below a row that is open: its `node`, and `update(row)` that changes it in place.
 * `empty` is what a table without rows says: `fill()` makes the node, anew where `key()` differs. */
export class Table {
  constructor({ columns, id, label, sort, onsort, details, empty }) {
    Object.assign(this, { columns, id, sort, onsort, details, empty });
    this.rows = new Map();
    this.open = new Set();
    this.heads = new Map();
    this.head = make("tr");
    this.body = make("tbody");
    this.node = make("table", { "aria-label": label }, make("thead", {}, this.head), this.body);
    this.body.addEventListener("keydown", (event) => this.move(event));
    for (const column of columns) this.addHead(column);
    this.showSort();
  }

  addHead(column) {
    const inside = column.order
      ? make("button", { type: "button", text: column.title, onclick: () => this.sortBy(column.id) })
      : make("span", { text: column.title });
    const head = make("th", { scope: "col", class: classes(column), "data-column": column.id, title: column.about }, inside);
    this.heads.set(column.id, head);
    this.head.append(head);
  }

  sortBy(id) {
    const column = this.columns.find((each) => each.id === id);
    const down = this.sort.id === id ? !this.sort.down : Boolean(column.number);
    this.sort = { id, down };
    this.onsort?.(this.sort);
    this.showSort();
    this.show(this.shown);
  }

  showSort() {
    for (const [id, head] of this.heads) {
      if (id === this.sort.id) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  hide(ids) {
    for (const column of this.columns) {
      const hidden = ids.includes(column.id);
      if (column.hidden === hidden) continue;
      column.hidden = hidden;
      this.heads.get(column.id).hidden = hidden;
      for (const { cells } of this.rows.values()) cells.get(column.id).hidden = hidden;
    }
  }

  sorted(rows) {
    const column = this.columns.find((each) => each.id === this.sort.id);
    if (!column?.order) return rows;
    const sign = this.sort.down ? -1 : 1;
    const keyed = rows.map((row) => [column.order(row), row]);
    // What has no value comes last, whichever way it is sorted.
    keyed.sort(([a, one], [b, other]) =>
      (a === null) - (b === null) || sign * compare(a, b) || compare(this.id(one), this.id(other)));
    return keyed.map(([, row]) => row);
  }

  show(rows) {
    this.shown = rows;
    const seen = new Set();
    const nodes = [];
    for (const row of this.sorted(rows)) {
      const id = this.id(row);
      seen.add(id);
      const kept = this.rows.get(id) ?? this.addRow(id);
      this.update(kept, row);
      nodes.push(kept.node);
      if (kept.below) nodes.push(kept.below);
    }
    for (const id of this.rows.keys()) if (!seen.has(id)) this.rows.delete(id);
    if (!nodes.length && this.empty) nodes.push(this.nothing());
    this.place(nodes);
  }

  /** The only row of a table without any. */
  nothing() {
    this.hole ??= make("tr", { class: "nothing" }, make("td", { colspan: this.columns.length }));
    fill(this.hole.firstChild, this.empty.key(), () => [this.empty.fill()]);
    return this.hole;
  }

  /** Bring nodes into order, and leave alone those that are in their place. */
  place(nodes) {
    const focused = document.activeElement;
    let at = this.body.firstChild;
    for (const node of nodes) {
      if (node === at) at = at.nextSibling;
      else this.body.insertBefore(node, at);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    // A row that moves loses the focus.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
    const stops = [...this.body.querySelectorAll("tr.row")];
    if (this.details && !stops.some((row) => row.tabIndex === 0)) stops[0]?.setAttribute("tabindex", "0");
  }

  addRow(id) {
    const node = make("tr", { class: "row", tabindex: this.details ? "-1" : null });
    const cells = new Map();
    for (const column of this.columns) {
      const cell = make("td", { class: classes(column), "data-label": column.title, "data-column": column.id });
      cell.hidden = Boolean(column.hidden);
      cells.set(column.id, cell);
      node.append(cell);
    }
    const kept = { node, cells, below: null, update: null, id };
    if (this.details) {
      node.addEventListener("click", (event) => event.target.closest("a,button,input,summary") ?? this.toggle(kept));
      node.setAttribute("aria-expanded", "false");
    }
    this.rows.set(id, kept);
    return kept;
  }

  update(kept, row) {
    kept.row = row;
    for (const column of this.columns) {
      const cell = kept.cells.get(column.id);
      const key = column.key(row);
      fill(cell, key, () => (column.fill ? column.fill(row) : [key]));
      const hint = column.hint?.(row) ?? "";
      if (hint && cell.title !== hint) cell.title = hint;
      const kind = column.kind?.(row) ?? "";
      if (cell.dataset.kind !== kind) cell.dataset.kind = kind;
    }
    kept.update?.(row);
  }

  toggle(kept) {
    if (kept.below) {
      kept.below.remove();
      kept.below = kept.update = null;
    } else {
      const { node, update } = this.details();
      update(kept.row);
      kept.update = update;
      kept.below = make("tr", { class: "below" }, make("td", { colspan: this.columns.length }, node));
      kept.node.after(kept.below);
    }
    kept.node.setAttribute("aria-expanded", String(Boolean(kept.below)));
  }

  /** Arrows go from row to row, Enter opens one. */
  move(event) {
    const row = event.target.closest("tr.row");
    if (!row || event.target !== row || !this.details) return;
    const rows = [...this.body.querySelectorAll("tr.row")];
    const at = rows.indexOf(row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      const target = rows[Math.max(0, Math.min(rows.length - 1, to))];
      row.tabIndex = -1;
      target.tabIndex = 0;
      target.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.toggle([...this.rows.values()].find((kept) => kept.node === row));
    }
  }
}

const classes = (column) => [column.number ? "number" : "", column.class ?? ""].join(" ").trim() || undefined;

const compare = (a, b) => {
  if (a === b) return 0;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
};
