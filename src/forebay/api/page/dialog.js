// Dialogs and toasts: what is about to happen, what has happened, and how to undo it.

import { make, one } from "./dom.js";
import { Problem } from "./connection.js";

const TOAST_MS = 8_000;
const UNDO_MS = 60_000;

/** Show a dialog until it is closed; `build(close)` makes what is in it. Resolves to what `close` is given. */
export const dialog = (title, build, { wide = false } = {}) => new Promise((resolve) => {
  const box = make("dialog", { "aria-label": title, class: wide ? "wide" : null });
  const close = (value) => { box.returned = value; box.close(); };
  box.append(make("h2", { text: title }), ...build(close));
  box.addEventListener("close", () => { box.remove(); resolve(box.returned ?? null); });
  box.addEventListener("click", (event) => event.target === box && close(null));
  document.body.append(box);
  box.showModal();
});

/** Ask before something is done; true where it is to be. */
export const confirm = (title, text, verb, danger = false) => dialog(title, (close) => [
  make("p", { text }),
  make("p", { class: "actions" },
    make("button", { type: "button", class: danger ? "danger" : "primary", text: verb, autofocus: !danger, onclick: () => close(true) }),
    make("button", { type: "button", text: "Cancel", autofocus: danger, onclick: () => close(false) })),
]);

/** Ask for a line of text; null where none is given. */
export const ask = (title, text, { verb, secret = false, value = "" }) => dialog(title, (close) => {
  const field = make("input", { type: secret ? "password" : "text", autocomplete: "off", spellcheck: "false", "aria-label": title, autofocus: true });
  field.value = value;
  const form = make("form", {
    onsubmit: (event) => { event.preventDefault(); close(field.value.trim() || null); },
  }, make("p", { text }), field, make("p", { class: "actions" },
    make("button", { type: "submit", class: "primary", text: verb }),
    make("button", { type: "button", text: "Cancel", onclick: () => close(null) })));
  return [form];
});

/** Say what has happened; `undo` takes it back. */
export const toast = (text, { undo = null, bad = false } = {}) => {
  const node = make("div", { class: bad ? "toast bad" : "toast" }, make("span", { text }));
  const drop = () => node.remove();
  if (undo) node.append(make("button", { type: "button", text: "Undo", onclick: () => { drop(); attempt(undo); } }));
  node.append(make("button", { type: "button", class: "quiet", "aria-label": "Close", text: "×", onclick: drop }));
  one("#toasts").append(node);
  if (!bad) setTimeout(drop, undo ? UNDO_MS : TOAST_MS);
};

/** Do something, and say so where it fails. */
export const attempt = async (work) => {
  try {
    return await work();
  } catch (error) {
    const hint = error instanceof Problem && error.hint ? `: ${error.hint}` : "";
    toast(`${error.message}${hint}`, { bad: true });
    return null;
  }
};
