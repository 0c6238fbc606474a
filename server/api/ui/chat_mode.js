// The mode that talks with the model. Owns the turns; each reply is a run of its own.

import { h } from "./dom.js";
import { Desk } from "./desk.js";
import { Run } from "./run.js";
import { TokenView } from "./token_view.js";

export class ChatMode extends Desk {
  constructor(page) {
    super("chat", page);
    this.turns = []; // {user, run, view, element}
    this.log = h("div", { class: "text chat" });
    this.empty = h("p", { class: "empty" },
      "Write a message below. Every word of the reply can be looked into, and changed.");
    this.message = h("textarea", {
      "aria-label": "Message", placeholder: "Message; Enter sends it", rows: 1,
      onkeydown: (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.ctrlKey) return;
        event.preventDefault();
        this.start();
      },
    });
    this.button("run").textContent = "Send";
    this.button("run").title = "Enter";
    const clear = h("button", {
      type: "button", "data-action": "clear", title: "Begin another conversation", onclick: () => this.clear(),
    }, "New chat");
    this.element = h("section", { class: "desk", "aria-label": "Chat" }, this.log,
      h("div", { class: "composer" }, this.message), h("div", { class: "buttons" }, this.buttons, clear),
      this.strip.element, this.branches);
    this.log.append(this.empty);
  }

  get view() {
    return this.turns.at(-1)?.view ?? null;
  }

  views() {
    return this.turns.map(({ view }) => view);
  }

  fields() {
    const user = this.message.value.trim();
    if (!user) {
      this.message.focus();
      return null;
    }
    const system = this.session.get("system").trim();
    const before = this.turns.flatMap((turn) => [
      { role: "user", content: turn.user }, { role: "assistant", content: turn.run.data.text },
    ]);
    this.user = user;
    const first = system ? [{ role: "system", content: system }] : [];
    return { messages: [...first, ...before, { role: "user", content: user }] };
  }

  begun(run) {
    this.message.value = "";
    this.addTurn(this.user, run);
  }

  addTurn(user, run) {
    this.empty.remove();
    const measure = this.session.get("measure");
    const view = this.follow(new TokenView("Reply; the arrow keys go from token to token", { measure }));
    const turn = { user, run, view };
    const edit = h("button", {
      type: "button", class: "quiet", title: "Write this message differently; what follows it is left",
      onclick: () => this.edit(turn),
    }, "Edit");
    turn.element = h("article", { class: "turn", "aria-label": `Message ${this.turns.length + 1}` },
      h("div", { class: "user" }, h("p", {}, user), edit), view.element);
    this.turns.push(turn);
    this.log.append(turn.element);
    view.show(run);
    run.addEventListener("change", () => this.follower(view));
    turn.element.scrollIntoView({ block: "start" });
  }

  // Stays at the end of the text while it grows, unless the reader has scrolled up.
  follower(view) {
    if (this.view !== view || !this.run?.isLive) return;
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    if (scrollHeight - scrollTop - clientHeight < 120) this.log.scrollTop = scrollHeight;
  }

  edit(turn) {
    this.stop();
    this.message.value = turn.user;
    this.cutAt(this.turns.indexOf(turn));
    this.message.focus();
  }

  cutAt(index) {
    for (const { element, view } of this.turns.splice(index)) {
      view.show(null);
      element.remove();
    }
    if (!this.turns.length) this.log.append(this.empty);
    this.watch(this.turns.at(-1)?.run ?? null);
    this.branches.hidden = true;
    this.remembered = null;
    this.remember();
  }

  clear() {
    this.stop();
    this.cutAt(0);
    this.message.focus();
  }

  // A branch stands where its parent stood; what came after it is left.
  replaced(old, run, same) {
    const index = this.turns.findIndex((turn) => turn.run === old);
    for (const { element } of this.turns.splice(index + 1)) element.remove();
    this.turns[index].run = run;
    this.turns[index].view.show(run, same);
    run.addEventListener("change", () => this.follower(this.turns[index]?.view));
  }

  remember() {
    this.session.set("turns", this.turns.map(({ user, run }) => ({ user, id: run.id })));
  }

  async restore() {
    for (const { user, id } of this.session.get("turns")) {
      if (!id) return;
      const run = Run.attach("chat", id);
      await run.answered();
      if (run.state === "failed") return;
      this.forest.add(run);
      this.addTurn(user, run);
      this.watch(run);
    }
    if (this.run) this.forest.complete(this.run.id, "chat");
  }

  focus() {
    this.message.focus();
  }
}
