// The mode that continues a text: the prompt can be written where the text begins.

import { h } from "./dom.js";
import { Desk } from "./desk.js";
import { Run } from "./run.js";
import { TokenView } from "./token_view.js";

export class PromptMode extends Desk {
  constructor(page) {
    super("prompt", page);
    this.prompt = h("span", {
      class: "prompt", role: "textbox", "aria-multiline": "true", "aria-label": "Prompt",
      contenteditable: "plaintext-only", spellcheck: "false",
      oninput: () => this.session.set("prompt", this.prompt.textContent),
    });
    this.prompt.textContent = this.session.get("prompt");
    this.view = this.follow(new TokenView("Completion; the arrow keys go from token to token", { lead: this.prompt }));
    this.hint = h("p", { class: "hint" },
      "Write the beginning of a text here, and run it. Then point at any word: what else it could have been, "
      + "and how likely. Choose another one, and the text goes on from there.");
    this.paper = h("div", { class: "text", onclick: (event) => this.clicked(event) }, this.view.element, this.hint);
    this.element = h("section", { class: "desk", "aria-label": "Prompt" }, this.paper,
      h("div", { class: "buttons" }, this.buttons), this.strip.element, this.branches);
  }

  views() {
    return [this.view];
  }

  fields() {
    return { prompt: this.prompt.textContent };
  }

  begun(run) {
    this.view.show(run);
    this.paper.scrollTop = 0;
  }

  replaced(_, run, same) {
    this.view.show(run, same);
    const text = run.data.prompt?.text;
    if (text !== undefined && text !== this.prompt.textContent) this.setPrompt(text);
  }

  setPrompt(text) {
    this.prompt.textContent = text;
    this.session.set("prompt", text);
  }

  changed() {
    this.hint.hidden = this.run !== null;
    this.prompt.classList.toggle("alone", this.run === null);
    super.changed();
  }

  remember() {
    this.session.set("runs", { ...this.session.get("runs"), prompt: this.run.id });
  }

  // What was there before the page was loaded again.
  async restore() {
    const id = this.session.get("runs").prompt;
    if (!id) return;
    const run = Run.attach("prompt", id);
    await run.answered();
    if (run.state === "failed") return;
    this.forest.add(run);
    this.view.show(run);
    this.watch(run);
    this.forest.complete(id, "prompt");
  }

  // A click beside the text goes to the end of the prompt while there is nothing else.
  clicked({ target }) {
    if (target !== this.paper && target !== this.view.element && !target.classList.contains("block")) return;
    if (this.view.spans.length) return;
    this.prompt.focus();
    getSelection().selectAllChildren(this.prompt);
    getSelection().collapseToEnd();
  }

  focus() {
    this.prompt.focus();
  }
}
