// Small plots of the last minutes: what came in as a line, what went out as an area.

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 60;
const STEP_SECONDS = 5;

const shape = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

/** The last minutes of each group, as the server had them, and then as they come. */
export class Plots {
  constructor() {
    this.groups = new Map();
    this.version = 0;
  }

  static key(queue, group) {
    return `${queue}\n${group}`;
  }

  load(plots) {
    this.groups.clear();
    for (const { queue, group, plot } of plots) {
      const points = plot.at.map((at, i) => ({ at, in: plot.in_rates[i], out: plot.out_rates[i] }));
      this.groups.set(Plots.key(queue, group), { points, last: null });
    }
    this.version += 1;
  }

  /** Take in what was counted at a time, in seconds. */
  add(at, queues) {
    for (const { queue, group, accepted, done } of queues) {
      const key = Plots.key(queue, group);
      const kept = this.groups.get(key) ?? { points: [], last: null };
      this.groups.set(key, kept);
      const { last } = kept;
      if (last && at - last.at < STEP_SECONDS * 0.9) continue;
      if (last) {
        const seconds = at - last.at;
        const point = { at, in: Math.max(0, accepted - last.accepted) / seconds, out: Math.max(0, done - last.done) / seconds };
        kept.points = [...kept.points, point].slice(-POINTS);
      }
      kept.last = { at, accepted, done };
    }
    this.version += 1;
  }

  points(queue, group) {
    return this.groups.get(Plots.key(queue, group))?.points ?? [];
  }

  /** All groups together, by moment. */
  sum() {
    const found = new Map();
    for (const { points } of this.groups.values()) {
      for (const point of points) {
        const slot = Math.round(point.at / STEP_SECONDS);
        const all = found.get(slot) ?? { at: point.at, in: 0, out: 0 };
        found.set(slot, { at: all.at, in: all.in + point.in, out: all.out + point.out });
      }
    }
    return [...found.values()].sort((a, b) => a.at - b.at).slice(-POINTS);
  }
}

/** The top of a plot: one burst doesn't press all the rest to the ground, but runs into the top. */
const ceiling = (values) => {
  const sorted = values.toSorted((a, b) => a - b);
  const usual = sorted[Math.floor((sorted.length - 1) * 0.95)] * 1.5;
  return Math.max(usual > 0 ? Math.min(sorted.at(-1), usual) : sorted.at(-1), 1e-9);
};

/** A plot of what came in and what went out; one of both where `only` names it. */
export const plot = (all, width, height, label, only = null) => {
  const span = (POINTS - 1) * STEP_SECONDS;
  const first = (all.at(-1)?.at ?? 0) - span;
  const points = all.filter(({ at }) => at >= first);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "plot", role: "img" });
  svg.append(Object.assign(shape("title", {}), { textContent: label }));
  if (points.length < 2 || !points.some((point) => point.in || point.out)) {
    svg.append(shape("path", { class: "none", d: `M0 ${height - 1}H${width}` }));
    return svg;
  }
  const x = (at) => ((at - first) / span) * width;
  const most = ceiling(points.flatMap((p) => (only ? [p[only]] : [p.in, p.out])));
  const y = (value) => height - 1.5 - Math.min(1, value / most) * (height - 3);
  const line = (name) => points.map((p, i) => `${i ? "L" : "M"}${x(p.at).toFixed(1)} ${y(p[name]).toFixed(1)}`).join("");
  const area = (name) => `${line(name)}V${height}H${x(points[0].at).toFixed(1)}Z`;
  if (only !== "in") svg.append(shape("path", { class: "out-area", d: area("out") }), shape("path", { class: "out", d: line("out") }));
  if (only === "in") svg.append(shape("path", { class: "in-area", d: area("in") }));
  if (only !== "out") svg.append(shape("path", { class: "in", d: line("in") }));
  return svg;
};
