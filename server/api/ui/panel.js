// The settings of a request as sliders with names. Owns their elements; the list is in settings.js.

import { h } from "./dom.js";
import { MORE_SAMPLERS, newSeed, SAMPLERS } from "./settings.js";

// `read()` and `write(settings)`: where the settings are kept. `defaults()`: the model's own.
export class Panel {
  // `isOther`: the length, the seed and the stop texts are those of another panel.
  constructor(title, { read, write, defaults, context, isOther = false }) {
    Object.assign(this, { read, write, defaults, rows: [] });
    this.seed = numberInput("seed", { placeholder: "random", min: 0, step: 1 });
    this.length = numberInput("max_tokens", { min: 1, max: context, step: 1 });
    this.stops = h("input", { type: "text", id: `stop-${title}`, placeholder: "none", title: "texts that end the answer, with a comma between them; \\n is a line break" });
    this.drafts = h("input", { type: "checkbox", id: `drafts-${title}` });
    for (const input of [this.seed, this.length, this.stops, this.drafts]) {
      input.addEventListener("change", () => this.changed());
    }
    this.element = h("section", { class: "panel", "aria-label": title || "Settings" },
      title ? h("h2", {}, title) : null,
      isOther ? null : [field("max tokens", this.length), this.seedField(), field("stop at", this.stops)],
      SAMPLERS.map((sampler) => this.slider(sampler, title)),
      h("details", {}, h("summary", {}, "More samplers"), MORE_SAMPLERS.map((sampler) => this.slider(sampler, title))),
      h("p", { class: "check" }, this.drafts,
        h("label", { for: this.drafts.id, title: "guess tokens ahead; this never changes the text" }, "drafts")),
      h("button", { type: "button", class: "quiet", onclick: () => this.reset() }, "Back to the model’s own"));
    this.show();
  }

  seedField() {
    const dice = h("button", {
      type: "button", class: "quiet", title: "Another seed", "aria-label": "another seed",
      onclick: () => {
        this.seed.value = newSeed();
        this.changed();
      },
    }, "⚄");
    return h("p", { class: "field" }, h("label", { for: this.seed.id, title: "the same seed gives the same text" }, "seed"), this.seed, dice);
  }

  slider({ name, min, max, step, hint }, title) {
    const id = `${name}-${title}`;
    const range = h("input", { type: "range", min, max, step, "aria-label": `${name}, slider`, title: hint });
    const number = h("input", { type: "number", id, min, step: "any", title: hint });
    const row = h("p", { class: "slider" }, h("label", { for: id, title: hint }, name), number, range);
    const take = (value) => {
      if (Number.isFinite(value)) this.put({ [name]: value });
    };
    range.addEventListener("input", () => { number.value = range.value; mark(row, range, name, this.defaults()); });
    range.addEventListener("change", () => take(range.valueAsNumber));
    number.addEventListener("change", () => take(number.valueAsNumber));
    this.rows.push({ name, row, range, number });
    return row;
  }

  changed() {
    const seed = this.seed.value.trim();
    const length = Math.round(this.length.valueAsNumber);
    this.put({
      seed: seed === "" ? null : Math.round(Number(seed)),
      max_tokens: length >= 1 ? length : this.read().max_tokens,
      stop: this.stops.value.split(",").map((text) => text.replace(/\\n/g, "\n")).filter(Boolean),
      speculate: this.drafts.checked,
    });
  }

  put(change) {
    this.write({ ...this.read(), ...change });
    this.show();
  }

  reset() {
    this.write(structuredClone(this.defaults()));
    this.show();
  }

  show() {
    const settings = this.read();
    for (const { name, row, range, number } of this.rows) {
      range.value = number.value = settings[name];
      mark(row, range, name, this.defaults());
    }
    this.seed.value = settings.seed ?? "";
    this.length.value = settings.max_tokens;
    this.stops.value = settings.stop.join(",").replace(/\n/g, "\\n");
    this.drafts.checked = settings.speculate;
  }
}

let count = 0;

function numberInput(name, attributes) {
  count += 1;
  return h("input", { type: "number", id: `${name}-${count}`, ...attributes });
}

function field(text, input) {
  return h("p", { class: "field" }, h("label", { for: input.id }, text), input);
}

function mark(row, range, name, defaults) {
  row.classList.toggle("changed", Number(range.value) !== defaults[name]);
  range.style.setProperty("--at", `${(100 * (range.value - range.min)) / (range.max - range.min)}%`);
}
