// What opens above the page: the question for a key, the request as code, the help. Owns their texts.

import { baseUrl, hasKey } from "./api.js";
import { h } from "./dom.js";
import { asCurl, asPython } from "./samples.js";

function opened(label, ...children) {
  const dialog = h("dialog", { "aria-label": label, onclose: () => dialog.remove() }, ...children);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// The key that the reader types; null: none.
export function askForKey(wasWrong) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", id: "key", autocomplete: "off", required: true });
    const form = h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        resolve(input.value.trim());
        dialog.close();
      },
    },
    h("h2", {}, "This server needs an API key"),
    h("p", {}, wasWrong ? "That key is not valid. Try another one."
      : "It stays in this tab, and goes to this server only."),
    h("label", { for: "key" }, "API key"), input,
    h("p", { class: "buttons" }, h("button", { type: "submit" }, "Use it")));
    const dialog = opened("API key", form);
    dialog.addEventListener("close", () => resolve(null));
  });
}

export function showCode(path, body) {
  const code = h("code");
  const block = h("pre", { tabindex: 0, "aria-label": "Code" }, code);
  const texts = { curl: asCurl(baseUrl(), path, body, hasKey()), Python: asPython(baseUrl(), path, body, hasKey()) };
  const choose = (name) => { code.textContent = texts[name]; };
  const copy = h("button", { type: "button", onclick: () => copied(code.textContent, copy) }, "Copy");
  choose("curl");
  opened("The request as code",
    h("h2", {}, "This request as code"),
    h("fieldset", { class: "measures" }, h("legend", { class: "unseen" }, "Language"),
      Object.keys(texts).map((name, i) => h("label", {},
        h("input", { type: "radio", name: "language", checked: i === 0, onchange: () => choose(name) }),
        h("span", {}, `as ${name}`)))),
    block, h("p", { class: "buttons" }, copy, closing()));
}

const closing = () =>
  h("button", { type: "button", onclick: ({ target }) => target.closest("dialog").close() }, "Close");

// Browsers allow the clipboard only over HTTPS and on this machine.
export async function copied(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    window.prompt("Copy this:", text);
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

const KEYS = [
  ["Ctrl+Enter", "run; in a chat, Enter sends"],
  ["Esc", "close the card; then stop"],
  ["← →", "in the text: from token to token"],
  ["↓", "into the card of the token: its alternatives"],
  ["Enter", "on an alternative: go on with it instead"],
  ["P", "peek: where each alternative leads"],
  ["R", "other random numbers from this token on"],
  ["E", "write something else in its place"],
];
const WORDS = [
  ["model", "the probability that the model gives the token, before any sampler"],
  ["drawn", "its probability in what was drawn from; 0: a sampler removed it"],
  ["surprisal", "how unlikely a token was: one bit is 50 %, ten bits are 0.1 %"],
  ["entropy", "how undecided the model was in that place"],
  ["mean logprob", "the mean logarithm of the tokens’ probabilities; nearer to 0 is likelier"],
  ["drafts", "tokens guessed ahead and then checked; the text stays the same"],
  ["branch", "a new text that begins like this one; the old one stays in the tree"],
];

export function showHelp(model) {
  const list = (pairs) => h("dl", {}, pairs.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  const links = [
    ["docs", "the API"], ["openapi.json", "its contract"], ["props", "how the model is run"],
    ["metrics", "the metrics"], ["health", "the health"],
  ];
  opened("Help",
    h("h2", {}, "Keys"), list(KEYS), h("h2", {}, "Words"), list(WORDS),
    h("p", {}, `${model?.version ?? "Soliton"}. `,
      hasKey() ? "The API is described at /docs; a browser cannot send a key there, so save it with curl."
      : links.flatMap(([path, text], i) => [i ? ", " : "See ", h("a", { href: path }, text)])),
    h("p", { class: "buttons" }, closing()));
}
