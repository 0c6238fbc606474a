// The tree of branches. Owns its rows, and the keys that walk it.

import { rows } from "./branches.js";
import { h } from "./dom.js";

// Dispatches "choose" {id, at} when a row is opened, "select" {segment} when it is walked to.
export class TreeView extends EventTarget {
  constructor(forest, label) {
    super();
    this.forest = forest;
    this.current = null;
    this.at = null;
    this.element = h("ul", { class: "tree", role: "tree", "aria-label": label, onkeydown: (event) => this.key(event) });
  }

  show(id) {
    this.current = id;
    const tree = id ? this.forest.tree(id) : null;
    this.size = tree?.size ?? 0;
    const hadFocus = this.element.contains(document.activeElement);
    this.rows = tree ? rows(tree.segments) : [];
    const keyOf = ({ segment }) => `${segment.id}:${segment.from}`;
    const own = this.rows.findLast(({ segment }) => segment.id === id);
    this.index = Math.max(0, this.rows.findIndex((row) => keyOf(row) === this.at));
    if (!this.rows.some((row) => keyOf(row) === this.at) && own) this.index = this.rows.indexOf(own);
    this.element.replaceChildren(...this.rows.map((row, i) => this.row(row, i)));
    if (hadFocus) this.element.children[this.index]?.focus();
  }

  row({ segment, depth, parent, index }, i) {
    const { text, mean } = this.forest.segment(segment);
    const run = this.forest.runs.get(segment.id);
    const isHere = segment.id === this.current && segment.to === run.records.length;
    const item = h("li", {
      role: "treeitem", "aria-level": depth + 1, "aria-selected": String(isHere), tabindex: i === this.index ? 0 : -1,
      "aria-setsize": parent?.children.length ?? 1, "aria-posinset": index + 1,
      class: isHere ? "here" : "", onclick: () => this.choose(i), onfocus: () => this.walked(i),
    },
    h("span", { class: "text" }, text || "(the beginning)"),
    h("span", { class: "mean", title: "mean logprob of these tokens, in nats" }, mean === null ? "" : mean.toFixed(2)),
    h("span", { class: "count" }, `${segment.to - segment.from} tokens`),
    isHere ? h("span", { class: "mark" }, "◀ here") : null);
    item.style.setProperty("--depth", depth);
    return item;
  }

  walked(i) {
    const { segment } = this.rows[i];
    this.index = i;
    this.at = `${segment.id}:${segment.from}`;
    [...this.element.children].forEach((item, k) => { item.tabIndex = k === i ? 0 : -1; });
    this.dispatchEvent(new CustomEvent("select", { detail: { segment } }));
  }

  choose(i) {
    const { id, to } = this.rows[i].segment;
    this.dispatchEvent(new CustomEvent("choose", { detail: { id, at: to } }));
  }

  key(event) {
    const { segment, parent } = this.rows[this.index] ?? {};
    const find = (wanted) => this.rows.findIndex((row) => row.segment === wanted);
    const targets = {
      ArrowDown: this.index + 1, ArrowUp: this.index - 1, Home: 0, End: this.rows.length - 1,
      ArrowLeft: parent ? find(parent) : -1, ArrowRight: segment?.children.length ? find(segment.children[0]) : -1,
    };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(this.index);
    } else if (event.key in targets) {
      event.preventDefault();
      this.element.children[targets[event.key]]?.focus();
    }
  }
}
