// The mode that shows what is kept, and why a prompt missed. Asks for estimates, which compute nothing.

import { getJson, getText, postJson, request } from "./api.js";
import { h, setText } from "./dom.js";
import { promptText } from "./facts.js";
import { labelled } from "./gauges.js";
import { visible } from "./measures.js";

const WAIT_MS = 250;

export class CacheMode {
  constructor(page) {
    Object.assign(this, page);
    this.prompt = h("textarea", {
      "aria-label": "Prompt to look up", rows: 4, spellcheck: "false", oninput: () => this.later(),
    });
    this.asChat = h("input", { type: "checkbox", id: "as-chat", onchange: () => this.later() });
    this.verdict = h("p", { class: "verdict", role: "status" });
    this.why = h("p", { class: "hint" });
    this.tokens = h("p", { class: "pieces", role: "group", "aria-label": "The tokens of the prompt" });
    this.asked = h("tbody");
    this.kept = h("tbody");
    this.store = h("p");
    const legend = h("p", { class: "hint" }, h("span", { class: "piece cached" }, "cached"), " ",
      h("span", { class: "piece" }, "to compute"));
    this.element = h("section", { class: "desk sheet", "aria-label": "Cache" },
      h("h2", {}, "What would this prompt reuse?"),
      h("div", { class: "composer" }, this.prompt),
      h("p", { class: "check" }, this.asChat, h("label", { for: "as-chat" }, "as a message of a chat")),
      this.verdict, this.why, this.tokens, legend,
      h("h2", {}, "What the prompts of this page reused"),
      table(["prompt", "cached", "why not more"], this.asked, "Prompts of this page"),
      h("h2", {}, "What is kept"), this.store,
      table(["stream", "route", "state", "prompt", "text", ""], this.kept, "Kept streams"));
  }

  get run() {
    return null;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), WAIT_MS);
  }

  async ask() {
    const text = this.prompt.value;
    if (!text || !this.isShown) return;
    const fields = this.asChat.checked ? { messages: [{ role: "user", content: text }] } : { prompt: text };
    const body = { ...this.session.asked, ...fields };
    try {
      const [estimate, { tokens }] = await Promise.all([
        postJson("v1/estimate", { ...body, max_tokens: 1 }),
        postJson("tokenize", { ...body, with_pieces: true }),
      ]);
      if (text === this.prompt.value) this.show(estimate, tokens.map(({ piece }) => piece));
    } catch (error) {
      setText(this.verdict, error.message);
    }
  }

  // A piece that is not a text by itself is a list of bytes.
  show(estimate, pieces) {
    const { cached_tokens: cached, prompt_tokens: total, time_to_first_token_ms: first, cache } = estimate;
    const time = first === null ? ""
      : ` The first token would come after about ${first.toFixed(first < 10 ? 1 : 0)} ms.`;
    const here = cache.got ? `: “${cache.got.trim()}”` : "";
    setText(this.verdict, `${cached} of ${total} tokens are cached, ${total - cached} would be computed.`);
    const why = cache.reused < cache.wanted ? sentence(cache.reason + here)
      : "Nothing more can be: the last token is always computed.";
    setText(this.why, why + time);
    this.tokens.replaceChildren(...pieces.map((piece, i) => (
      h("span", { class: i < cached ? "piece cached" : "piece", title: i < cached ? "cached" : "to compute" },
        visible(typeof piece === "string" ? piece : "�")))));
  }

  async refresh() {
    const runs = [...this.forest.runs.values()].filter(({ data }) => data.cache).reverse();
    this.asked.replaceChildren(...runs.map(({ data }) => h("tr", {},
      h("td", { class: "long" }, (data.prompt?.text ?? "").slice(0, 200)),
      h("td", {}, promptText(data.cache)), h("td", {}, data.cache.reason))));
    if (!runs.length) this.asked.append(none(3, "Nothing was run since the page was loaded."));
    try {
      const answers = await Promise.all([getJson("v1/streams?limit=50"), getText("metrics")]);
      const [{ data, has_more: more }, metrics] = answers;
      this.kept.replaceChildren(...data.map((stream) => this.row(stream)));
      if (!data.length) this.kept.append(none(6, "No stream is kept."));
      if (more) this.kept.append(none(6, "There are more."));
      setText(this.store, this.storeText(labelled(metrics, "soliton_prefix_cache_lookups_total", "source")));
    } catch (error) {
      this.notice(error.message);
    }
  }

  storeText(lookups) {
    const { prefix_cache_mb: size, prefix_cache_on_disk: onDisk } = this.session.model.engine;
    const words = {
      active: "were in the active sequence", memory: "came from memory", disk: "came from disk", none: "were new",
    };
    const said = Object.entries(words).filter(([name]) => lookups[name])
      .map(([name, text]) => `${lookups[name]} ${text}`);
    return `Keys and values of past prompts have up to ${size} MB${onDisk ? ", and a place on disk" : ""}. `
      + (said.length ? `Of all prompts so far, ${said.join(", ")}.` : "No prompt has come yet.");
  }

  row({ id, wire, state, finish, prompt_tokens: prompt, completion_tokens: text, parent }) {
    const shown = this.forest.runs.get(id)?.data.text.slice(0, 120) || `${id.slice(0, 18)}…`;
    const forget = h("button", {
      type: "button", class: "quiet", "aria-label": `Forget ${id}`, onclick: () => this.forget(id),
    }, "Forget");
    return h("tr", {}, h("td", { class: "long", title: id }, shown),
      h("td", {}, parent ? `${wire}, branch at ${parent.at}` : wire),
      h("td", {}, state === "ended" ? `ended: ${finish}` : state),
      h("td", { class: "n" }, prompt), h("td", { class: "n" }, text), h("td", {}, forget));
  }

  async forget(id) {
    await request(`v1/streams/${id}`, { method: "DELETE" }).catch((error) => this.notice(error.message));
    await this.refresh();
  }

  enter() {
    this.isShown = true;
    this.prompt.value ||= this.session.get("prompt");
    this.facts.show(null);
    this.ask();
    this.refresh();
  }

  leave() {
    this.isShown = false;
  }

  fields() {
    return { prompt: this.prompt.value };
  }

  start() {}

  stop() {}

  focus() {
    this.prompt.focus();
  }
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
const none = (span, text) => h("tr", {}, h("td", { colspan: span, class: "none" }, text));

export function table(heads, body, label) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body));
}
