// Elements, made from text and never from markup: names of queues, payloads and headers are anybody's.

export const make = (tag, properties = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

export const one = (selector, root = document) => root.querySelector(selector);

/** Set a text only where it differs, so that a selection in it stays. */
export const say = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

/** Replace what is in a node only where `key` differs from the last time. */
export const fill = (node, key, children) => {
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...children().filter((child) => child !== null && child !== undefined && child !== false));
};
