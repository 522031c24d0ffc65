// The whole path of one message: its block, and for every group where it is and what happened.

import { ask, attempt, dialog } from "./dialog.js";
import { get, path } from "./connection.js";
import { make } from "./dom.js";
import { bytes, count, moment, plural } from "./format.js";
import { payloadText } from "./letters.js";

export const findMessage = async () => {
  const id = await ask("Find a message", "Its id, as a push returned it:", { verb: "Find" });
  if (id) await showMessage(id);
};

export const showMessage = async (id) => {
  const found = await attempt(() => get(path("v1", "messages", id)));
  if (found) await dialog(`Message ${found.id}`, (close) => content(found, close), { wide: true });
};

const content = (found, close) => [
  make("p", { class: "dim", text: `number ${count(found.sequence)} of ${found.queue}` }),
  make("ol", { class: "path" },
    found.block
      ? step("written", found.block.appended_at, `${found.block.count > 1 ? `with ${plural(found.block.count - 1, "other")}` : "alone"} in block ${found.block.id}, ${bytes(found.block.bytes)}`)
      : make("li", {}, make("b", { text: "dropped" }), make("span", { text: " retention has dropped its block" })),
    ...found.groups.flatMap((group) => [
      make("li", { class: "group" }, make("h3", { text: group.group })),
      ...(group.history ?? []).map((past) => step(past.outcome, past.at, [
        past.worker && `by ${past.worker}`, past.reason, past.code ? `status ${past.code}` : "",
        past.due_at ? `back at ${moment(past.due_at)}` : "",
      ].filter(Boolean).join(", "))),
      make("li", { class: "now" }, make("span", { class: "mode", "data-mode": group.state, text: group.state }),
        make("span", { text: [
          group.worker && ` with ${group.worker}`, group.deadline ? ` until ${moment(group.deadline)}` : "",
          group.due_at ? ` back at ${moment(group.due_at)}` : "", group.attempts ? `, attempt ${count(group.attempts + 1)}` : "",
        ].filter(Boolean).join("") })),
    ])),
  found.message && make("details", { open: true }, make("summary", { text: "Payload and headers" }), make("pre", { text: [
    ...Object.entries(found.message.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
    found.message.partition && `partition: ${found.message.partition}`,
    found.message.transaction_id && `transaction id: ${found.message.transaction_id}`,
    payloadText(found.message),
  ].filter(Boolean).join("\n") })),
  make("p", { class: "actions" }, make("button", { type: "button", text: "Close", autofocus: true, onclick: () => close(null) })),
].filter(Boolean);

const step = (what, at, text) => make("li", {}, make("time", { text: moment(at) }), make("b", { text: what }), make("span", { text: text ? ` ${text}` : "" }));
