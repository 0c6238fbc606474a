// The card of one token: both probabilities, the alternatives, what the samplers removed, who guessed
// it. Owns its element and its keys; what a choice does is said by whoever opens it.

import { cutBy, removals } from "./cuts.js";
import { h } from "./dom.js";
import { MEASURES, ORIGINS, originOf, percent, visible } from "./measures.js";

const OPEN_MS = 60;
const CLOSE_MS = 220;
const VERBS = { model: "drawn by", you: "set by" };

// Dispatches "branch" {view, index, fields}, "peek" {view, index, ids, show}, "rewind" and "closed".
export class Card extends EventTarget {
  constructor(nVocab) {
    super();
    this.nVocab = nVocab;
    this.view = null;
    this.pinned = false;
    this.element = h("div", {
      id: "card", role: "dialog", "aria-label": "Token", hidden: true,
      onpointerenter: () => clearTimeout(this.timer),
      onpointerleave: () => this.leave(),
      onkeydown: (event) => this.key(event),
    });
  }

  // Follows the pointer and the keys of a view.
  watch(view) {
    view.addEventListener("show", ({ detail }) => this.wanted(view, detail));
    view.addEventListener("leave", () => this.leave());
    view.element.addEventListener("keydown", (event) => this.viewKey(view, event));
  }

  wanted(view, { index, pinned }) {
    clearTimeout(this.timer);
    if (this.pinned && !pinned) return;
    if (pinned) this.open(view, index, true);
    else this.timer = setTimeout(() => this.open(view, index, false), this.view ? 0 : OPEN_MS);
  }

  leave() {
    clearTimeout(this.timer);
    if (!this.pinned) this.timer = setTimeout(() => this.close(), CLOSE_MS);
  }

  open(view, index, pinned) {
    const record = view.run?.records[index];
    if (!record) return;
    if (this.view && this.view !== view) this.view.select(-1);
    Object.assign(this, { view, index, pinned });
    if (!pinned) view.select(-1);
    this.element.replaceChildren(...this.content(record, view.run.records[index - 1]));
    this.element.classList.toggle("pinned", pinned);
    this.element.classList.remove("peeked");
    this.element.hidden = false;
    this.place(view.spans[index]);
  }

  close() {
    clearTimeout(this.timer);
    if (this.element.hidden) return;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    this.view.select(-1);
    if (hadFocus) this.view.element.focus({ preventScroll: true });
    this.view = null;
    this.pinned = false;
    this.dispatchEvent(new Event("closed"));
  }

  // Below the token, touching it, so that the pointer can go there; above where there is no room.
  place(span) {
    const [first] = span.getClientRects();
    const token = first ?? span.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.max(8, Math.min(token.left - 12, innerWidth - width - 8));
    const isBelow = token.bottom + height <= innerHeight - 8 || token.top < height;
    const top = isBelow ? Math.min(token.bottom + 2, innerHeight - height - 8) : token.top - height - 2;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${Math.max(8, top)}px`;
  }

  content(record, previous) {
    return [
      h("p", { class: "name" },
        h("strong", {}, visible(record.text || record.name || "")),
        h("span", {}, `token ${this.index + 1}`), h("span", {}, `id ${record.id ?? "?"}`)),
      this.table(record),
      h("ul", { class: "about" }, about(record, previous, this.nVocab).map((text) => h("li", {}, text))),
      this.actions(),
    ];
  }

  table(record) {
    const rows = alternativesOf(record).map((other, rank) => this.row(record, other, rank));
    return h("div", { class: "alternatives" },
      h("p", { class: "heads", "aria-hidden": "true" },
        h("span", {}, "next token"), h("span", {}, "model"), h("span", {}, "drawn"), h("span"), h("span")),
      rows);
  }

  row(record, other, rank) {
    const isOwn = other.id === record.id;
    const place = isOwn ? record.rank ?? rank : rank;
    const cut = other.pSampled === 0 ? cutBy(record.trace, place, this.nVocab) ?? "samplers" : null;
    const note = isOwn ? "✓ drawn" : cut ? `cut by ${cut}` : "";
    const bar = h("span", { class: "bars", "aria-hidden": "true" }, h("i"), h("i"));
    bar.children[0].style.width = `${100 * (other.pRaw ?? 0)}%`;
    bar.children[1].style.width = `${100 * (other.pSampled ?? 0)}%`;
    return h("button", {
      type: "button", class: `alternative${isOwn ? " own" : ""}${cut ? " cut" : ""}`, "data-id": other.id,
      title: isOwn ? "this token; draw again from here" : "go on with this token instead",
      onclick: () => this.choose(isOwn ? {} : { token_id: other.id }),
    },
    h("span", { class: "text" }, visible(other.text)),
    h("span", { class: "p" }, unseen("model "), `${percent(other.pRaw)} %`),
    h("span", { class: "p" }, unseen("drawn "), `${percent(other.pSampled)} %`),
    bar, h("span", { class: "note" }, note));
  }

  actions() {
    const input = h("input", {
      type: "text", "aria-label": "Text to go on with", placeholder: "write something else here …",
    });
    const form = h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        if (input.value) this.choose({ text: input.value });
      },
    }, input);
    return h("div", { class: "actions" }, form,
      h("button", { type: "button", onclick: () => this.choose({}), title: "Other random numbers from here on (R)" },
        "Redraw"),
      h("button", {
        type: "button", class: "peek", onclick: () => this.peek(), title: "Where each alternative leads (P)",
      }, "Peek"));
  }

  choose(fields) {
    const { view, index } = this;
    this.dispatchEvent(new CustomEvent("branch", { detail: { view, index, fields } }));
  }

  peek() {
    const { view, index } = this;
    const buttons = [...this.element.querySelectorAll(".alternative")];
    const ids = buttons.map((button) => Number(button.dataset.id)).filter(Number.isInteger);
    const show = (ways) => {
      if (this.view !== view || this.index !== index) return;
      for (const { token_id: id, text, tokens } of ways) {
        const button = buttons.find((each) => each.dataset.id === String(id));
        button?.querySelector(".way")?.remove();
        button?.append(h("span", { class: "way" }, `…${text.slice((tokens[0]?.token ?? "").length)}`));
      }
      this.element.classList.add("peeked");
      this.place(view.spans[index]);
    };
    this.dispatchEvent(new CustomEvent("peek", { detail: { view, index, ids, show } }));
  }

  viewKey(view, event) {
    if (this.view !== view || event.target !== view.element) return;
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.element.querySelector(".alternative")?.focus();
    } else this.letter(event);
  }

  key(event) {
    if (event.target instanceof HTMLInputElement) {
      if (event.key === "Escape") this.dismiss(event);
      return;
    }
    const buttons = [...this.element.querySelectorAll(".alternative")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (step && at >= 0) {
      event.preventDefault();
      if (at + step < 0) this.view.element.focus({ preventScroll: true });
      else buttons[Math.min(at + step, buttons.length - 1)].focus();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      this.view.element.focus({ preventScroll: true });
      this.view.pin(this.index + (event.key === "ArrowLeft" ? -1 : 1));
    } else this.letter(event);
  }

  letter(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const actions = {
      p: () => this.peek(), r: () => this.choose({}), e: () => this.element.querySelector("input").focus(),
    };
    if (event.key === "Escape") this.dismiss(event);
    else if (event.key in actions) {
      event.preventDefault();
      actions[event.key]();
    }
  }

  // Escape closes the card first; only the next one stops the stream.
  dismiss(event) {
    event.preventDefault();
    event.stopPropagation();
    this.close();
  }
}

const unseen = (text) => h("span", { class: "unseen" }, text);

// The likeliest tokens, with the token itself behind them if it is not one of them.
function alternativesOf(record) {
  const { alternatives, id } = record;
  if (alternatives.some((other) => other.id === id)) return alternatives;
  return [...alternatives, { text: record.text || record.name, id, pRaw: record.pRaw, pSampled: record.pSampled }];
}

// What stands below the alternatives, a line each.
export function about(record, previous, nVocab) {
  const bits = (name) => MEASURES[name].value(record, previous);
  const lines = [];
  if (Number.isFinite(record.logprob)) {
    const [surprisal, entropy] = ["surprisal", "entropy"].map((name) => `${name} ${bits(name).toFixed(1)} bits`);
    lines.push([`#${record.rank + 1} of ${nVocab.toLocaleString("en")}`, surprisal, entropy].join(" · "));
  }
  const cuts = removals(record.trace, nVocab);
  for (const { stage, left, first } of cuts) {
    const without = first ? ", without the model’s first choice" : "";
    lines.push(`${stage} left ${left.toLocaleString("en")} of ${nVocab.toLocaleString("en")}${without}`);
  }
  if (cuts.length && Number.isFinite(record.kept)) {
    lines.push(`${percent(record.kept)} % of the probability was left to draw from`);
  }
  const origin = originOf(record);
  const rejected = record.draft?.rejected_token_id;
  const who = origin ? `${VERBS[origin] ?? "guessed by"} ${ORIGINS[origin] ?? origin}` : "";
  const wrong = Number.isInteger(rejected) ? `, a draft had guessed token ${rejected}` : "";
  const time = bits("time");
  const when = time === null ? ""
    : time < 0.05 ? "together with the one before" : `${time.toFixed(1)} ms after the one before`;
  lines.push([`${who}${wrong}`, when].filter(Boolean).join(" · "));
  return lines.filter(Boolean);
}
