// The mode that shows one prompt and seed under two settings. Owns both columns, and the mark where
// they part.

import { firstDifference, sameLength } from "./difference.js";
import { h, setText } from "./dom.js";
import { factsOf } from "./facts.js";
import { visible } from "./measures.js";
import { Run } from "./run.js";
import { differing, newSeed, settingFields } from "./settings.js";
import { TokenView } from "./token_view.js";

export class CompareMode {
  constructor(page) {
    Object.assign(this, page);
    this.prompt = h("textarea", {
      "aria-label": "Prompt of both", rows: 2, spellcheck: "false",
      oninput: () => this.session.set("prompt", this.prompt.value),
    });
    this.columns = [["A", "settings"], ["B", "other"]].map(([name, which]) => this.column(name, which));
    this.verdict = h("p", { class: "verdict", role: "status" });
    this.buttons = [
      h("button", { type: "button", "data-action": "run", title: "Ctrl+Enter", onclick: () => this.start() },
        "Run both"),
      h("button", { type: "button", "data-action": "stop", title: "Esc", onclick: () => this.stop() }, "Stop"),
    ];
    this.element = h("section", { class: "desk compare", "aria-label": "Compare" },
      h("div", { class: "composer" }, this.prompt), h("div", { class: "buttons" }, this.buttons, this.verdict),
      h("div", { class: "columns" }, this.columns.map(({ element }) => element)));
    this.session.addEventListener("change", ({ detail }) => {
      if (detail === "settings" || detail === "other") this.named();
      if (detail === "measure") this.views().forEach((view) => view.colour(this.session.get("measure")));
    });
  }

  column(name, which) {
    const view = new TokenView(`Text ${name}`);
    this.card.watch(view);
    const difference = h("p", { class: "settings" });
    const said = h("p", { class: "said" });
    const element = h("section", { "aria-label": `Text ${name}` }, h("h2", {}, name), difference,
      h("div", { class: "text" }, view.element), said);
    return { name, which, view, difference, said, element, run: null };
  }

  views() {
    return this.columns.map(({ view }) => view);
  }

  get run() {
    return this.columns.find(({ run }) => run?.isLive)?.run ?? this.columns[0].run;
  }

  // The seed of both is that of A; without one a new one is drawn.
  async start() {
    await this.stop();
    const { session } = this;
    const seed = session.settings.seed ?? newSeed();
    const shared = { seed, max_tokens: session.settings.max_tokens, stop: session.settings.stop };
    for (const column of this.columns) {
      const fields = settingFields({ ...session[column.which], ...shared }, session.defaults);
      this.put(column, Run.start("prompt", { ...session.asked, prompt: this.prompt.value, ...fields }));
    }
    this.notice("");
    this.complain(null);
    this.changed();
  }

  put(column, run) {
    column.run = run;
    column.view.show(run);
    run.addEventListener("change", () => {
      this.remember();
      this.changed();
    });
    run.ended.then(() => { if (run.data.error) this.complain(run, column.which); });
  }

  // Both texts as they were before the page was loaded again, or neither.
  async restore() {
    const ids = this.session.get("runs").compare ?? [];
    if (ids.length !== this.columns.length) return;
    const runs = ids.map((id) => Run.attach("prompt", id));
    await Promise.all(runs.map((run) => run.answered()));
    if (runs.some(({ state }) => state === "failed")) return;
    this.columns.forEach((column, i) => this.put(column, runs[i]));
    this.changed();
  }

  // The second one has an id as soon as it leaves the queue.
  remember() {
    const ids = this.columns.map(({ run }) => run?.id ?? null);
    const runs = this.session.get("runs");
    if (ids.some((id) => id === null) || `${runs.compare}` === `${ids}`) return;
    this.session.set("runs", { ...runs, compare: ids });
  }

  async stop() {
    await Promise.all(this.columns.map(({ run }) => run?.stop().catch((error) => this.notice(error.message))));
  }

  changed() {
    if (!this.isShown) return;
    const runs = this.columns.map(({ run }) => run);
    this.buttons[1].disabled = !runs.some((run) => run?.isLive);
    this.facts.show(this.run);
    if (runs.includes(null)) return;
    const [one, other] = runs.map(({ records }) => records);
    const ended = runs.every((run) => !run.isLive);
    const place = firstDifference(one, other, { ended });
    for (const { run, view, said } of this.columns) {
      view.mark(place);
      const facts = factsOf(run).filter(([name]) => ["speed", "drafts", "mean logprob"].includes(name));
      setText(said, run.data.error ?? facts.map(([name, value]) => `${name} ${value}`).join(" · "));
    }
    setText(this.verdict, this.verdictText(one, other, place, ended));
  }

  verdictText(one, other, place, ended) {
    const n = sameLength(one, other);
    if (place === null) return ended ? `All ${n} tokens are the same.` : `The same so far: ${n} tokens.`;
    const [a, b] = [one, other].map((records) => (records[place] ? `“${visible(records[place].text)}”` : "the end"));
    return `The same for ${place} tokens, then ${a} in A and ${b} in B.`;
  }

  named() {
    const { settings, other } = this.session;
    const texts = [differing(settings, other), differing(other, settings)];
    this.columns.forEach(({ difference }, i) =>
      setText(difference, texts[i] || "the same settings: change one of them on the right"));
  }

  enter() {
    this.isShown = true;
    this.prompt.value = this.session.get("prompt");
    this.views().forEach((view) => view.colour(this.session.get("measure")));
    this.named();
    this.changed();
  }

  leave() {
    this.isShown = false;
    this.card.close();
  }

  fields() {
    return { prompt: this.prompt.value };
  }

  focus() {
    this.prompt.focus();
  }
}
