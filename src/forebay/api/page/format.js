// Numbers, times and durations as people read them.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const count = (number) => whole.format(number);

export const rate = (number) => {
  if (number === null || number === undefined) return "–";
  return number !== 0 && Math.abs(number) < 9.95 ? fine.format(number) : whole.format(number);
};

export const bytes = (number) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, number > 0 ? Math.floor(Math.log2(number) / 10) : 0);
  return `${fine.format(number / 1024 ** unit)} ${units[unit]}`;
};

const STEPS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

/** Two units at most: 2d 4h, 3m 20s, 8s. */
export const duration = (seconds) => {
  const rounded = Math.max(0, Math.round(seconds));
  const at = STEPS.findIndex(([size]) => rounded >= size);
  if (at < 0) return "0s";
  const [size, unit] = STEPS[at];
  const [smaller, smallerUnit] = STEPS[at + 1] ?? [0, ""];
  const rest = smaller ? Math.floor((rounded % size) / smaller) : 0;
  return `${count(Math.floor(rounded / size))}${unit}${rest ? ` ${rest}${smallerUnit}` : ""}`;
};

const AGES = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

/** As people say it: 5 minutes ago. */
export const ago = (seconds) => {
  if (seconds < 1.5) return "just now";
  const [size, unit] = AGES.find(([each]) => seconds >= each) ?? AGES.at(-1);
  const number = Math.floor(seconds / size);
  return `${count(number)} ${unit}${number === 1 ? "" : "s"} ago`;
};

export const clock = (micros) =>
  new Date(micros / 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const moment = (micros) => new Date(micros / 1000).toISOString().replace(/\.\d+Z$/, "Z");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
