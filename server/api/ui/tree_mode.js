// The mode that shows all branches of the current text at once, and where each place might lead.

import { h } from "./dom.js";
import { percent } from "./measures.js";
import { TreeView } from "./tree_view.js";

export class TreeMode {
  // `desk()`: the mode whose text is shown.
  constructor(page, desk) {
    Object.assign(this, page, { desk });
    this.tree = new TreeView(this.forest, "All branches");
    this.tree.addEventListener("select", ({ detail }) => this.selected(detail.segment));
    this.tree.addEventListener("choose", ({ detail }) => {
      this.desk().open(detail.id);
      this.changed();
    });
    this.tree.element.addEventListener("keydown", (event) => this.key(event));
    this.empty = h("p", { class: "empty" },
      "No text yet: run one in Prompt or Chat. Choose another word in it, and both ways stand here.");
    this.ways = h("ul", { class: "ways", "aria-label": "Where the alternatives lead" });
    this.peekButton = h("button", { type: "button", title: "P", onclick: () => this.peek() }, "Peek from here");
    this.openButton = h("button", { type: "button", title: "Enter, then Prompt or Chat", onclick: () => this.show() },
      "Open the text");
    this.element = h("section", { class: "desk tree-mode", "aria-label": "Tree" },
      h("p", { class: "hint" },
        "↑ ↓ walk the rows, ← → go to the parent and to the first branch, Enter chooses, P peeks."),
      h("div", { class: "text" }, this.empty, this.tree.element),
      h("div", { class: "buttons" }, this.peekButton, this.openButton), this.ways);
    this.forest.addEventListener("change", () => this.changed());
  }

  get run() {
    return this.desk().run;
  }

  changed() {
    if (!this.isShown || this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      const { run } = this;
      this.tree.show(run?.id ?? null);
      this.empty.hidden = this.tree.size > 0;
      this.peekButton.disabled = this.openButton.disabled = !this.tree.size;
      this.segment ??= this.tree.rows[this.tree.index]?.segment;
      this.facts.show(run);
    }, 50);
  }

  selected(segment) {
    this.segment = segment;
    this.ways.replaceChildren();
  }

  key(event) {
    if (event.key.toLowerCase() !== "p" || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.peek();
  }

  async peek() {
    const { id, to } = this.segment;
    const run = this.forest.runs.get(id);
    // Behind the token that ended the text nothing comes.
    const at = Math.min(to, run.records.findLastIndex(({ text }) => text) + 1);
    const answer = await this.desk().tried(() => run.peek(at, { top: 6, tokens: 16 }));
    if (!answer) return;
    this.ways.replaceChildren(...answer.alternatives.map(({ token_id: id_, text, tokens }) => h("li", {},
      h("button", { type: "button", title: "Go on this way", onclick: () => this.take(run, at, id_) },
        h("span", { class: "p" }, `${percent(tokens[0]?.p_raw)} %`), h("span", { class: "text" }, text)))));
  }

  async take(run, at, tokenId) {
    this.ways.replaceChildren();
    await this.desk().branch(run, at, { token_id: tokenId });
    this.changed();
  }

  show() {
    this.desk().open(this.segment.id);
    this.session.set("mode", this.desk().mode);
  }

  enter() {
    this.isShown = true;
    this.segment = null;
    this.changed();
  }

  leave() {
    this.isShown = false;
  }

  stop() {
    return this.desk().stop();
  }

  start() {
    return this.desk().start();
  }

  fields() {
    return this.desk().fields();
  }

  focus() {
    this.tree.element.querySelector("[tabindex='0']")?.focus();
  }
}
