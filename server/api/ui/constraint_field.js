// The constraint of a request: a kind, and what is written for it. Owns its two fields.

import { h } from "./dom.js";

const KINDS = {
  json: { name: "JSON schema", example: '{"type": "object", "properties": {"name": {"type": "string"}}}' },
  regex: { name: "regex", example: "(yes|no), .*" },
  grammar: { name: "Lark or GBNF", example: 'start: "The " ("cat" | "dog") /.*/' },
};

export class ConstraintField {
  // `changed(value)`: {json, regex or grammar: text}, or null.
  constructor(title, changed) {
    const kinds = Object.entries(KINDS).map(([kind, { name }]) => h("option", { value: kind }, name));
    this.kind = h("select", { id: `constraint-${title}` }, h("option", { value: "" }, "none"), kinds);
    this.text = h("textarea", { "aria-label": "What the text must match", rows: 2, spellcheck: "false", hidden: true });
    this.kind.addEventListener("change", () => {
      this.prepare();
      changed(this.value);
    });
    this.text.addEventListener("change", () => changed(this.value));
    this.element = h("div", { class: "constraint" },
      h("p", { class: "field" },
        h("label", { for: this.kind.id, title: "what the text must match as a whole" }, "constraint"), this.kind),
      this.text);
  }

  // Nothing written yet is no constraint.
  get value() {
    return this.kind.value && this.text.value.trim() ? { [this.kind.value]: this.text.value } : null;
  }

  clear() {
    this.kind.value = "";
    this.show(null);
  }

  // A kind for which nothing is written yet stays as it is.
  show(value) {
    if (value === null && this.kind.value && !this.text.value.trim()) return;
    const [kind, text] = value ? Object.entries(value)[0] : ["", ""];
    this.kind.value = kind;
    this.text.value = text;
    this.prepare();
  }

  prepare() {
    this.text.hidden = !this.kind.value;
    this.text.placeholder = KINDS[this.kind.value]?.example ?? "";
  }
}
