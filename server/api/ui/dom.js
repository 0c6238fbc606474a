// Elements in one line. Owns nothing else.

// h("button", { class: "a", "aria-label": "b", onclick: f }, "text", child)
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Sets a text only if it changes: a screen reader would read it again.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
