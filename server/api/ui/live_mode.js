// The mode that shows what the server does now. Owns the readings of the last minutes.

import { getJson, getText, postJson } from "./api.js";
import { table } from "./cache_mode.js";
import { drawLine } from "./curve.js";
import { h, setText } from "./dom.js";
import { parseMetrics, sample } from "./gauges.js";

const EVERY_MS = 1000;
const COUNT = 60;
const CHARTS = [
  { name: "queue", title: "Queue", unit: "requests", least: 4, hint: "requests that wait for the engine" },
  { name: "rate", title: "Tokens", unit: "per second", least: 50, hint: "counted when a request ends" },
  { name: "speed", title: "Speed of a request", unit: "tok/s", least: 50,
    hint: "mean of the requests that ended in this second" },
  { name: "first", title: "First token", unit: "ms", least: 20, hint: "from the arrival, with the wait" },
  { name: "drafts", title: "Drafts right", unit: "%", least: 100, scale: 100, hint: "guessed tokens that came true" },
  { name: "cached", title: "Prompt cached", unit: "%", least: 100, scale: 100,
    hint: "prompt tokens that were not computed" },
];

export class LiveMode {
  constructor(page) {
    Object.assign(this, page);
    this.samples = [];
    this.charts = CHARTS.map((chart) => {
      const value = h("output");
      const canvas = h("canvas", { role: "img", "aria-label": chart.title });
      const element = h("figure", { title: chart.hint },
        h("figcaption", {}, h("span", {}, chart.title), value), canvas);
      return { ...chart, value, canvas, element };
    });
    this.busy = h("p", { role: "status" });
    this.rows = h("tbody");
    this.element = h("section", { class: "desk sheet", "aria-label": "Live" },
      this.busy, h("div", { class: "charts" }, this.charts.map(({ element }) => element)),
      h("p", { class: "hint" }, "The last minute. Requests count when they end."),
      h("h2", {}, "Streams that run now"),
      table(["stream", "route", "state", "tokens", ""], this.rows, "Running streams"));
  }

  get run() {
    return null;
  }

  async read() {
    try {
      const [metrics, { data }] = await Promise.all([getText("metrics"), getJson("v1/streams?limit=100")]);
      const now = { values: parseMetrics(metrics), at: performance.now() };
      if (this.before) {
        this.samples.push(sample(this.before.values, now.values, (now.at - this.before.at) / 1000));
        this.samples.splice(0, this.samples.length - COUNT);
      }
      this.before = now;
      this.show(data.filter(({ state }) => state !== "ended"));
    } catch (error) {
      this.notice(error.message);
    }
    if (this.isShown) this.timer = setTimeout(() => this.read(), EVERY_MS);
  }

  show(streams) {
    for (const { name, unit, least, scale, value, canvas, title } of this.charts) {
      const values = this.samples.map((each) => (each[name] === null ? null : each[name] * (scale ?? 1)));
      const last = values.findLast((each) => each !== null);
      const top = Math.max(least, ...values.filter((each) => each !== null).map((each) => (scale ? each : 1.1 * each)));
      setText(value, last === undefined ? "–"
        : `${last.toFixed(last < 10 && !Number.isInteger(last) ? 1 : 0)} ${unit}`);
      canvas.setAttribute("aria-label", `${title}: ${value.textContent}`);
      drawLine(canvas, values, { top, count: COUNT });
    }
    const { queue, busy } = this.samples.at(-1) ?? { queue: 0, busy: 0 };
    setText(this.busy, `${busy ? "● The engine is busy" : "○ The engine is idle"}, ${queue || "nobody"} in the queue.`);
    this.rows.replaceChildren(...streams.map((stream) => this.row(stream)));
    if (!streams.length) this.rows.append(h("tr", {}, h("td", { colspan: 5, class: "none" }, "None that is kept.")));
  }

  row({ id, wire, state, completion_tokens: n }) {
    const button = (action, text) => h("button", {
      type: "button", class: "quiet", "aria-label": `${text} ${id}`,
      onclick: () => postJson(`v1/streams/${id}/control`, { action }).catch((error) => this.notice(error.message)),
    }, text);
    return h("tr", {}, h("td", { class: "long" }, id), h("td", {}, wire), h("td", {}, state),
      h("td", { class: "n" }, n),
      h("td", {}, state === "paused" ? button("resume", "Resume") : button("pause", "Pause"), button("stop", "Stop")));
  }

  enter() {
    this.isShown = true;
    this.facts.show(null);
    clearTimeout(this.timer);
    this.read();
  }

  leave() {
    this.isShown = false;
    clearTimeout(this.timer);
    this.before = null;
  }

  fields() {
    return { prompt: this.session.get("prompt") };
  }

  start() {}

  stop() {}

  focus() {}
}
