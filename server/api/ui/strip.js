// Below the text: the switch of the measure with its legend, and the curve. Owns these three.

import { barAt, drawBars } from "./curve.js";
import { h } from "./dom.js";
import { heightOf, legend, levelOf, MEASURES } from "./measures.js";
import { meanLogprob } from "./records.js";

let count = 0;

export class Strip {
  // `onPick(index)`: a bar was clicked.
  constructor(session, onPick) {
    this.session = session;
    this.run = null;
    this.selected = -1;
    this.legend = h("ul", { class: "legend", "aria-label": "Legend" });
    this.canvas = h("canvas", {
      class: "curve", role: "img",
      onclick: (event) => {
        const index = this.run ? barAt(this.canvas, event.offsetX, this.run.records.length) : -1;
        if (index >= 0) onPick(index);
      },
    });
    this.element = h("section", { class: "strip", "aria-label": "Colours" },
      h("div", { class: "row" }, this.measures(), this.legend), this.canvas);
    session.addEventListener("change", ({ detail }) => {
      if (detail === "measure" || detail === "theme") this.colour();
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.colour();
  }

  measures() {
    count += 1;
    this.name = `measure-${count}`;
    return h("fieldset", { class: "measures" }, h("legend", {}, "Colour by"),
      Object.entries(MEASURES).map(([name, { label, hint }]) => h("label", { title: hint },
        h("input", {
          type: "radio", name: this.name, value: name, checked: name === this.session.get("measure"),
          onchange: () => this.session.set("measure", name),
        }), h("span", {}, label))));
  }

  colour() {
    const measure = this.session.get("measure");
    const { unit } = MEASURES[measure];
    for (const input of this.element.querySelectorAll("input")) input.checked = input.value === measure;
    this.legend.replaceChildren(...legend(measure).map((entry) => (
      h("li", {}, h("span", { class: `t ${entry.class}` }, entry.text)))),
    ...(unit ? [h("li", {}, unit)] : []));
    this.draw();
  }

  show(run, selected = -1) {
    this.run = run;
    this.selected = selected;
    this.draw();
  }

  draw() {
    const { records } = this.run ?? { records: [] };
    const measure = this.session.get("measure");
    const values = records.map((record, i) => MEASURES[measure].value(record, records[i - 1]));
    drawBars(this.canvas, values.map((value) => heightOf(measure, value)), {
      selected: this.selected,
      colours: values.map((value) => (measure === "draft" ? (value === "model" ? 1 : 4) : levelOf(measure, value))),
    });
    const mean = meanLogprob(records);
    this.canvas.setAttribute("aria-label", records.length
      ? `${MEASURES[measure].label} of ${records.length} tokens; mean surprisal ${(-mean / Math.LN2).toFixed(2)} bits`
      : "No tokens yet");
    this.canvas.hidden = !records.length;
  }
}
