// The page put together. Owns the modes and what stands in the header; each part knows its own job.

import { baseUrl, getText, onMissingKey } from "./api.js";
import { fromFile, toFile } from "./archive.js";
import { CacheMode } from "./cache_mode.js";
import { Card } from "./card.js";
import { ChatMode } from "./chat_mode.js";
import { CompareMode } from "./compare_mode.js";
import { askForKey, copied, showCode, showHelp } from "./dialogs.js";
import { byId, h } from "./dom.js";
import { Facts } from "./facts.js";
import { Forest } from "./forest.js";
import { parseMetrics } from "./gauges.js";
import { fromFragment, toFragment } from "./link.js";
import { LiveMode } from "./live_mode.js";
import { Panel } from "./panel.js";
import { PromptMode } from "./prompt_mode.js";
import { described, pathOf, Run } from "./run.js";
import { Session } from "./session.js";
import { settingFields, settingsOf } from "./settings.js";
import { speaker } from "./speech.js";
import { TreeMode } from "./tree_mode.js";

const THEMES = ["auto", "light", "dark"];

class App {
  constructor() {
    this.session = new Session();
    onMissingKey(askForKey);
    this.theme(this.session.get("theme"));
  }

  async start() {
    await this.load();
    this.build();
    const shared = fromFragment(location.hash);
    if (shared) this.take(shared);
    this.connect();
    this.enter(shared?.mode ?? this.session.get("mode"));
    const { prompt, chat, compare } = this.modes;
    await Promise.all([prompt, chat, compare].map((mode) => (shared && this.mode === mode ? null : mode.restore())));
    this.refresh();
  }

  // Until the server answers.
  async load() {
    for (let wait = 500; ; wait = Math.min(2 * wait, 5000)) {
      try {
        await this.session.load();
        this.notice("");
        return;
      } catch (error) {
        this.notice(error.status === 401 ? "Without a key this server tells nothing. Reload the page to enter one."
          : error.status ? error.message : "The server does not answer; the page keeps asking.");
        if (error.status === 401) wait = 1e9;
      }
      await new Promise((resolve) => { setTimeout(resolve, wait); });
    }
  }

  build() {
    const { session } = this;
    const { name, all, nParams, nVocab, context, engine } = session.model;
    const facts = ` · ${rounded(nParams)} · ${engine.weights} · ${engine.compute}`;
    byId("model").replaceChildren(all.length > 1 ? choice(all, name) : name, facts);
    byId("model").title = `${context.toLocaleString("en")} tokens of context`;
    this.card = new Card(nVocab);
    document.body.append(this.card.element);
    this.forest = new Forest();
    this.facts = new Facts(byId("facts"));
    this.panel = this.panelOf("", "settings");
    this.other = this.panelOf("B", "other");
    const page = {
      session, forest: this.forest, card: this.card, facts: this.facts,
      notice: (text) => this.notice(text), complain: (run, which) => this.complain(run, which),
      say: speaker(byId("spoken")),
    };
    const prompt = new PromptMode(page);
    const chat = new ChatMode(page);
    this.modes = {
      prompt, chat, compare: new CompareMode(page), tree: new TreeMode(page, () => this.desk),
      cache: new CacheMode(page), live: new LiveMode(page),
    };
    this.desk = session.get("mode") === "chat" ? chat : prompt;
    byId("main").replaceChildren(...Object.values(this.modes).map(({ element }) => {
      element.hidden = true;
      return element;
    }));
    this.system = h("textarea", {
      id: "system", rows: 3, placeholder: "none", oninput: () => session.set("system", this.system.value),
    });
    this.system.value = session.get("system");
    this.systemField = h("p", { class: "wide" }, h("label", { for: "system" }, "system message"), this.system);
    byId("settings").replaceChildren(this.systemField, this.panel.element, this.other.element);
  }

  panelOf(title, which) {
    const { session } = this;
    return new Panel(title, {
      read: () => session[which], write: (settings) => session.setSettings(which, settings),
      defaults: () => session.defaults, context: session.model.context, isOther: which === "other",
    });
  }

  connect() {
    for (const button of byId("modes").children) {
      button.addEventListener("click", () => this.session.set("mode", button.dataset.mode));
    }
    this.session.addEventListener("change", ({ detail }) => {
      if (detail === "mode") this.enter(this.session.get("mode"));
    });
    this.card.addEventListener("branch", ({ detail }) => this.branch(detail));
    this.card.addEventListener("peek", ({ detail }) => this.desk.peek(detail));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", ({ target }) => {
      if (this.card.pinned && !this.card.element.contains(target) && target.index === undefined) this.card.close();
    });
    addEventListener("resize", () => this.card.close());
    byId("main").addEventListener("scroll", () => { if (!this.card.pinned) this.card.close(); }, true);
    byId("share").addEventListener("click", ({ target }) => this.share(target));
    byId("code").addEventListener("click", () => this.code());
    byId("export").addEventListener("click", () => this.export());
    byId("import").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", ({ target }) => this.import(target));
    byId("help").addEventListener("click", () => showHelp(this.session.model));
    byId("theme").addEventListener("click", () => {
      this.theme(THEMES[(THEMES.indexOf(this.session.get("theme")) + 1) % THEMES.length]);
    });
    setInterval(() => this.refresh(), 1000);
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "auto" ? "Theme" : name === "light" ? "Light" : "Dark";
    this.session.set("theme", name);
  }

  enter(name) {
    if (!(name in this.modes)) name = "prompt";
    this.mode?.leave();
    this.mode = this.modes[name];
    if (name === "prompt" || name === "chat") this.desk = this.mode;
    for (const [each, { element }] of Object.entries(this.modes)) element.hidden = each !== name;
    for (const button of byId("modes").children) {
      button.setAttribute("aria-current", button.dataset.mode === name ? "page" : "false");
    }
    document.body.dataset.mode = name;
    byId("settings").hidden = name === "cache" || name === "live";
    this.systemField.hidden = name !== "chat";
    this.other.element.hidden = name !== "compare";
    this.panel.element.classList.toggle("named", name === "compare");
    this.mode.enter();
  }

  notice(text) {
    byId("notice").textContent = text;
    byId("notice").hidden = !text;
  }

  // Shows what went wrong with a run: by the setting that the server names, else above the text.
  // Without a run nothing is wrong any more.
  complain(run, which = "settings") {
    const panel = which === "other" ? this.other : this.panel;
    if (!run) [this.panel, this.other].forEach((each) => each.complain(null));
    else if (!panel.complain(run.faultyField, run.data.error)) this.notice(run.data.error);
  }

  async branch({ view, index, fields }) {
    this.card.close();
    const desk = this.desk;
    if (this.mode !== desk) this.session.set("mode", "prompt");
    await desk.branch(view.run, index, fields);
    view.element.focus({ preventScroll: true });
  }

  key(event) {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      if (!this.card.element.hidden) this.card.close();
      else this.mode.stop();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      // What is still being typed into a setting counts.
      if (byId("settings").contains(event.target)) event.target.dispatchEvent(new Event("change"));
      this.mode.start();
    }
  }

  // How many wait, while the own request does.
  async refresh() {
    const run = this.mode?.run;
    if (run?.state !== "queued") return;
    const metrics = await getText("metrics").catch(() => "");
    if (run.state === "queued") this.facts.show(run, { queue: parseMetrics(metrics).soliton_queue_length });
  }

  // The request that is shown, with the seed that its text had.
  request() {
    const { session } = this;
    const fields = this.mode.fields() ?? this.desk.run?.request ?? { messages: [] };
    const settings = settingFields(session.settings, session.defaults);
    const seed = this.mode.run?.data.seed;
    return { ...session.asked, ...fields, ...settings, ...(seed === null || seed === undefined ? {} : { seed }) };
  }

  // A link that opens this request: the fragment never leaves the browser.
  share(button) {
    const { session } = this;
    const mode = session.get("mode");
    const more = mode === "compare" ? { other: settingFields(session.other, session.defaults) } : {};
    const link = `${baseUrl()}/ui${location.search}${toFragment({ mode, system: session.get("system"), ...this.request(), ...more })}`;
    history.replaceState(null, "", link);
    copied(link, button);
  }

  take(shared) {
    const { session } = this;
    session.set("mode", shared.mode in this.modes ? shared.mode : "prompt");
    session.setSettings("settings", settingsOf(shared, session.defaults));
    if (shared.other) session.setSettings("other", settingsOf(shared.other, session.defaults));
    if (typeof shared.prompt === "string") this.modes.prompt.setPrompt(shared.prompt);
    const last = shared.messages?.findLast?.(({ role }) => role === "user");
    if (last) this.modes.chat.message.value = String(last.content);
    if (typeof shared.system === "string") {
      session.set("system", shared.system);
      this.system.value = shared.system;
    }
    this.panel.show();
    this.other.show();
  }

  code() {
    const isChat = this.mode === this.modes.chat;
    const mode = isChat ? "chat" : "prompt";
    showCode(pathOf(mode), { model: this.session.model.name, ...this.request(), ...described(mode) });
  }

  export() {
    const { run, mode } = this.desk;
    if (!run) {
      this.notice("There is no text to export yet.");
      return;
    }
    const data = new Blob([toFile(mode, this.request(), run.data)], { type: "application/json" });
    const link = h("a", { href: URL.createObjectURL(data), download: `soliton-${run.id ?? "run"}.json` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      const { mode, request, run } = fromFile(await file.text());
      this.take({ ...request, mode });
      this.enter(mode);
      const imported = Run.imported(mode, run);
      this.desk.user = request.messages?.findLast(({ role }) => role === "user")?.content ?? "";
      this.desk.begun(imported);
      this.desk.watch(imported);
    } catch (error) {
      this.notice(error.message);
    }
  }
}

// Which of the models the page is about. Another one is another address.
function choice(names, current) {
  return h("select", {
    "aria-label": "Model", onchange: ({ target }) => { location.search = new URLSearchParams({ model: target.value }); },
  }, names.map((name) => h("option", { selected: name === current }, name)));
}

function rounded(count) {
  const [size, name] = count >= 1e9 ? [1e9, "B"] : count >= 1e6 ? [1e6, "M"] : [1, ""];
  return `${(count / size).toFixed(size > 1 ? 1 : 0)}${name}`;
}

export const app = new App();
app.start();
