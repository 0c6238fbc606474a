// The settings of a request as fields with names, and what the server says against one of them. Owns
// their elements; the list is in settings.js.

import { ConstraintField } from "./constraint_field.js";
import { h } from "./dom.js";
import { OrderList } from "./order.js";
import { MORE_SAMPLERS, newSeed, SAMPLER_ORDER, SAMPLERS } from "./settings.js";

// `read()` and `write(settings)`: where the settings are kept. `defaults()`: the model's own.
export class Panel {
  // `isOther`: the length, the seed and the stop texts are those of another panel.
  constructor(title, { read, write, defaults, context, isOther = false }) {
    Object.assign(this, { read, write, defaults, rows: [] });
    this.seed = numberInput("seed", { placeholder: "random", min: 0, step: 1 });
    this.length = numberInput("max_tokens", { min: 1, max: context, step: 1 });
    this.stops = h("input", {
      type: "text", id: `stop-${title}`, placeholder: "none",
      title: "texts that end the answer, with a comma between them; \\n is a line break",
    });
    this.drafts = h("input", { type: "checkbox", id: `drafts-${title}` });
    for (const input of [this.seed, this.length, this.stops, this.drafts]) {
      input.addEventListener("change", () => this.changed());
    }
    this.order = new OrderList("Order of the samplers", (names) => this.put({ sampler_order: names }));
    this.constraint = new ConstraintField(title, (value) => this.put({ structured_outputs: value }));
    this.complaint = h("p", { class: "complaint", role: "alert", id: `complaint-${title}` });
    this.element = h("section", { class: "panel", "aria-label": title || "Settings" },
      title ? h("h2", {}, title) : null,
      isOther ? null : [field("max tokens", this.length), this.seedField(), field("stop at", this.stops)],
      SAMPLERS.map((sampler) => this.slider(sampler, title)), this.more(title),
      h("p", { class: "check" }, this.drafts,
        h("label", { for: this.drafts.id, title: "guess tokens ahead; this never changes the text" }, "drafts")),
      h("button", { type: "button", class: "quiet", onclick: () => this.reset() }, "Back to the model’s own"));
    this.show();
  }

  more(title) {
    this.folded = h("details", {}, h("summary", {}, "More"), this.constraint.element,
      MORE_SAMPLERS.map((sampler) => this.slider(sampler, title)),
      h("div", { class: "field", title: "drag a row, or use its arrows; penalties and DRY run before all of them" },
        h("span", {}, "order of the samplers")), this.order.element);
    return this.folded;
  }

  seedField() {
    const dice = h("button", {
      type: "button", class: "quiet", title: "Another seed", "aria-label": "another seed",
      onclick: () => {
        this.seed.value = newSeed();
        this.changed();
      },
    }, "⚄");
    const label = h("label", { for: this.seed.id, title: "the same seed gives the same text" }, "seed");
    return h("p", { class: "field" }, label, this.seed, dice);
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
    this.complain(null);
    this.write({ ...this.read(), ...change });
    this.show();
  }

  // Shows below a field what the server says of it. Returns false if there is no such field here.
  // `param`: the server's name of the field, such as "stop" or "structured_outputs.json".
  complain(param, message = "") {
    this.faulty?.removeAttribute("aria-invalid");
    this.faulty?.removeAttribute("aria-describedby");
    this.complaint.remove();
    this.faulty = this.input(param?.split(/[.[]/)[0]);
    if (!this.faulty?.isConnected) return false;
    if (this.folded.contains(this.faulty)) this.folded.open = true;
    this.faulty.setAttribute("aria-invalid", "true");
    this.faulty.setAttribute("aria-describedby", this.complaint.id);
    const row = this.faulty.closest("p, ol, textarea");
    row.after(this.complaint);
    this.complaint.textContent = message;
    this.complaint.scrollIntoView({ block: "nearest" });
    return true;
  }

  input(name) {
    const others = {
      seed: this.seed, max_tokens: this.length, stop: this.stops, speculate: this.drafts,
      sampler_order: this.order.element, structured_outputs: this.constraint.text,
    };
    return others[name] ?? this.rows.find((row) => row.name === name)?.number ?? null;
  }

  reset() {
    this.complain(null);
    this.constraint.clear();
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
    this.order.show(settings.sampler_order ?? SAMPLER_ORDER);
    this.constraint.show(settings.structured_outputs);
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
