// What the modes with a text have in common: the buttons, the curve, the branches, and what happens
// when they are used. Owns the run that is shown; the text itself belongs to the modes.

import { h } from "./dom.js";
import { allFields, newSeed, settingFields } from "./settings.js";
import { Run } from "./run.js";
import { Strip } from "./strip.js";
import { TreeView } from "./tree_view.js";

const REWIND = 10;
const DRAW_MS = 100;

export class Desk {
  // `page`: {session, forest, card, facts, notice, complain, say}.
  constructor(mode, page) {
    Object.assign(this, page, { mode, page, run: null });
    this.onChange = () => this.changed();
    this.strip = new Strip(this.session, (index) => this.view?.pin(index));
    this.tree = new TreeView(this.forest, "Branches");
    this.tree.addEventListener("choose", ({ detail }) => this.open(detail.id));
    this.forest.addEventListener("change", () => this.treeChanged());
    this.branches = h("details", { class: "branches", hidden: true, open: true }, h("summary", {}, "Branches"),
      this.tree.element);
    this.buttons = this.actions();
    this.session.addEventListener("change", ({ detail }) => {
      if (detail === "measure") this.views().forEach((view) => view.colour(this.session.get("measure")));
    });
  }

  actions() {
    const button = (name, text, title, onclick) =>
      h("button", { type: "button", "data-action": name, title, onclick }, text);
    return [
      button("run", "Run", "Ctrl+Enter", () => this.start()),
      button("stop", "Stop", "Esc", () => this.stop()),
      button("pause", "Pause", "Gives the engine to others until you resume", () => this.pause()),
      button("rewind", `Back ${REWIND}`, `Takes the last ${REWIND} tokens back, before the next one`,
        () => this.control("rewind", { tokens: Math.min(REWIND, this.run.records.length) })),
      button("continue", "Go on", "Writes more after the end", () => this.goOn()),
    ];
  }

  button(name) {
    return this.buttons.find((each) => each.dataset.action === name);
  }

  // For the modes: view, views(), fields(), begun(run), replaced(old, run, same).

  async start() {
    const fields = this.fields();
    if (!fields) return;
    await this.stop();
    const { settings, defaults, asked } = this.session;
    const seed = settings.seed ?? newSeed();
    const request = { ...asked, ...fields, ...settingFields({ ...settings, seed }, defaults) };
    const run = this.forest.add(Run.start(this.mode, request));
    this.begun(run);
    this.watch(run);
  }

  async stop() {
    await this.tried(() => this.run?.stop());
  }

  pause() {
    return this.control(this.run.state === "paused" ? "resume" : "pause");
  }

  control(action, fields) {
    return this.tried(() => this.run.control(action, fields));
  }

  // `fields`: token_id, text, or nothing for other random numbers.
  async branch(run, at, fields) {
    if (!run.isKept || !run.id) {
      this.notice("The server does not keep this text, so nothing can branch from it. Run it again.");
      return null;
    }
    if (run.isLive) await this.tried(() => run.stop());
    const { settings, model } = this.session;
    const room = model.context - (run.data.prompt?.token_ids.length ?? 0);
    const more = fields.text ? fields.text.length : 1;
    const limit = Math.min(at + more + settings.max_tokens, room);
    const child = this.forest.add(run.branch(at, { ...allFields(settings), max_tokens: limit, ...fields }));
    // What both begin with is there at once; the server sends it again.
    child.data.prompt = run.data.prompt;
    this.replaced(run, child, at);
    this.watch(child);
    return child;
  }

  goOn() {
    const { run } = this;
    const last = run.records.findLastIndex(({ text }) => text);
    return this.branch(run, last + 1, { min_tokens: last + 2 });
  }

  async peek({ view, index, ids, show }) {
    const answer = await this.tried(() => view.run.peek(index, { token_ids: ids, tokens: 12 }));
    if (answer) show(answer.alternatives);
  }

  // Another branch of the same tree.
  open(id) {
    const run = this.forest.runs.get(id);
    if (!run || run === this.run) return;
    this.replaced(this.run, run, 0);
    this.watch(run);
  }

  watch(run) {
    this.run?.removeEventListener("change", this.onChange);
    this.run = run;
    run?.addEventListener("change", this.onChange);
    this.notice("");
    this.complain(null);
    this.changed();
  }

  // Not at every frame: the curve is drawn anew from all tokens.
  changed() {
    if (!this.isShown) return;
    const { run } = this;
    this.facts.show(run);
    this.showButtons();
    if (run) {
      this.say(run);
      if (run.data.error) this.complain(run);
    }
    if (run?.id && run.id !== this.remembered) {
      this.remembered = run.id;
      this.remember();
    }
    if (!this.timer) {
      this.timer = setTimeout(() => {
        this.timer = null;
        this.strip.show(this.run, this.view?.selected);
      }, run?.isLive ? DRAW_MS : 0);
    }
  }

  showButtons() {
    const state = this.run?.state ?? "new";
    const isLive = this.run?.isLive ?? false;
    const canControl = isLive && this.run.isKept && this.run.id !== null;
    this.button("stop").disabled = !isLive;
    this.button("pause").disabled = !canControl;
    this.button("pause").textContent = state === "paused" ? "Resume" : "Pause";
    this.button("rewind").disabled = !canControl || !this.run.records.length;
    this.button("continue").disabled = isLive || !this.run?.records.length || !this.run.isKept;
  }

  treeChanged() {
    if (!this.isShown || !this.run?.id || this.treeTimer) return;
    this.treeTimer = setTimeout(() => {
      this.treeTimer = null;
      if (!this.run?.id) return;
      this.tree.show(this.run.id);
      this.branches.hidden = this.tree.size < 2;
    }, DRAW_MS);
  }

  enter() {
    this.isShown = true;
    this.views().forEach((view) => view.colour(this.session.get("measure")));
    this.changed();
    this.treeChanged();
  }

  leave() {
    this.isShown = false;
    this.card.close();
  }

  async tried(action) {
    try {
      return await action();
    } catch (error) {
      this.notice(error.message);
      return null;
    }
  }

  // A view whose tokens have cards.
  follow(view) {
    this.card.watch(view);
    view.addEventListener("show", ({ detail }) => {
      if (detail.pinned) this.strip.show(this.run, detail.index);
    });
    return view;
  }
}
