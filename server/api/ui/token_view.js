// The tokens of one run as text. Owns their elements and which of them is selected; it only appends,
// or drops from the end. A line of text is a block, and blocks out of sight are not laid out.

import { h } from "./dom.js";
import { tokenClass } from "./measures.js";

// Dispatches "show" {index, pinned} and "leave".
export class TokenView extends EventTarget {
  // `lead`: an element that stands before the first token, in its line.
  constructor(label, { lead = null, measure = "surprisal" } = {}) {
    super();
    this.run = null;
    this.measure = measure;
    this.spans = [];
    this.selected = -1;
    this.lead = lead;
    this.element = h("div", {
      class: "tokens", tabindex: 0, role: "group", "aria-label": label,
      // Not pointerover, which also comes when the text moves below a pointer that rests.
      onpointermove: (event) => this.hovered(event),
      onpointerleave: () => this.left(),
      onclick: (event) => this.clicked(event),
      onkeydown: (event) => this.key(event),
    });
    this.onChange = ({ detail }) => this.paint(detail.from);
    this.clear();
  }

  clear() {
    this.spans = [];
    this.selected = -1;
    this.block = h("div", { class: "block" }, this.lead);
    this.element.replaceChildren(this.block);
  }

  // Shows another run; what both begin with stays where it is.
  show(run, same = 0) {
    this.run?.removeEventListener("change", this.onChange);
    this.run = run;
    if (!run) {
      this.clear();
      return;
    }
    run.addEventListener("change", this.onChange);
    this.paint(Math.min(same, run.records.length));
  }

  paint(from) {
    const { records } = this.run;
    this.truncate(Math.min(from, records.length));
    for (let i = this.spans.length; i < records.length; i += 1) this.append(records[i], records[i - 1]);
  }

  truncate(length) {
    for (const span of this.spans.splice(length)) {
      const block = span.parentNode;
      span.space?.remove();
      span.remove();
      if (!block.childNodes.length && block !== this.element.firstChild) block.remove();
    }
    this.block = this.spans.at(-1)?.parentNode ?? this.element.firstChild;
    if (this.selected >= length) this.selected = -1;
  }

  append(record, previous) {
    const last = this.spans.length ? this.run.records[this.spans.length - 1] : null;
    if (last?.text.endsWith("\n")) {
      this.block = h("div", { class: "block" });
      this.element.append(this.block);
    }
    const span = document.createElement("span");
    // A space before a word stays outside, so that no tint hangs at the end of a line.
    const space = /^ +(?=\S)/.exec(record.text)?.[0] ?? "";
    if (space) this.block.append(span.space = document.createTextNode(space));
    span.textContent = record.text.slice(space.length);
    if (!record.text) span.dataset.name = record.name ?? "";
    span.className = this.classOf(record, previous);
    span.index = this.spans.length;
    this.spans.push(span);
    this.block.append(span);
  }

  classOf(record, previous) {
    const more = (record.text.endsWith("\n") ? " newline" : "") + (record.text ? "" : " hidden-token")
      + (record.part === "content" ? "" : ` ${record.part}`);
    return `t ${tokenClass(this.measure, record, previous)}${more}`;
  }

  colour(measure) {
    this.measure = measure;
    const { records } = this.run ?? { records: [] };
    this.spans.forEach((span, i) => {
      span.className = this.classOf(records[i], records[i - 1]) + (i === this.selected ? " selected" : "");
    });
  }

  // Marks from the place of a first difference on; null: nothing.
  mark(place) {
    this.spans.forEach((span, i) => span.classList.toggle("differs", i === place));
  }

  select(index) {
    this.spans[this.selected]?.classList.remove("selected");
    this.selected = index;
    this.spans[index]?.classList.add("selected");
  }

  pin(index) {
    if (!this.spans.length) return;
    this.select(Math.max(0, Math.min(index, this.spans.length - 1)));
    this.spans[this.selected].scrollIntoView({ block: "nearest" });
    this.dispatchEvent(new CustomEvent("show", { detail: { index: this.selected, pinned: true } }));
  }

  hovered({ target }) {
    if (target === this.under) return;
    this.under = target;
    if (target.index === undefined) return;
    this.dispatchEvent(new CustomEvent("show", { detail: { index: target.index, pinned: false } }));
  }

  left() {
    this.under = null;
    this.dispatchEvent(new Event("leave"));
  }

  clicked({ target }) {
    if (target.index !== undefined && getSelection().isCollapsed) this.pin(target.index);
  }

  key(event) {
    if (event.target !== this.element || event.ctrlKey || event.altKey || event.metaKey) return;
    const places = {
      ArrowLeft: this.selected < 0 ? this.spans.length - 1 : this.selected - 1,
      ArrowRight: this.selected + 1, Home: 0, End: this.spans.length - 1,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    this.pin(places[event.key]);
  }
}
