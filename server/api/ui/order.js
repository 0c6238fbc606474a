// The order of the samplers as a list whose rows can be moved. Owns the list; knows no request.

import { h } from "./dom.js";

export class OrderList {
  // `changed(names)`: the reader has moved a row.
  constructor(label, changed) {
    this.changed = changed;
    this.names = [];
    this.element = h("ol", { class: "order", "aria-label": label });
    this.element.addEventListener("dragover", (event) => this.dragged(event));
    this.element.addEventListener("drop", (event) => event.preventDefault());
  }

  show(names) {
    if (this.names.join() === names.join()) return;
    this.names = names;
    this.element.replaceChildren(...names.map((name) => this.row(name)));
  }

  row(name) {
    const button = (text, word, step) => h("button", {
      type: "button", class: "quiet", "aria-label": `${name} ${word}`, title: word,
      onclick: () => this.move(name, step),
    }, text);
    return h("li", {
      draggable: "true", "data-name": name,
      ondragstart: ({ currentTarget, dataTransfer }) => {
        this.moving = currentTarget;
        dataTransfer.effectAllowed = "move";
      },
      ondragend: () => this.dropped(),
    }, h("span", {}, name), button("↑", "earlier", -1), button("↓", "later", 1));
  }

  // The button that was pressed keeps the focus, so that it can be pressed again.
  move(name, step) {
    const rows = [...this.element.children];
    const from = this.names.indexOf(name);
    const to = from + step;
    if (to < 0 || to >= rows.length) return;
    const { activeElement } = document;
    if (step < 0) rows[to].before(rows[from]);
    else rows[to].after(rows[from]);
    activeElement.focus();
    this.taken();
  }

  dragged(event) {
    const over = event.target.closest("li");
    if (!this.moving || !over) return;
    event.preventDefault();
    const { top, height } = over.getBoundingClientRect();
    if (over !== this.moving) over[event.clientY < top + height / 2 ? "before" : "after"](this.moving);
  }

  dropped() {
    this.moving = null;
    this.taken();
  }

  taken() {
    this.names = [...this.element.children].map((row) => row.dataset.name);
    this.changed(this.names);
  }
}
