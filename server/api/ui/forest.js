// The runs that the page has seen, and the branches that the server keeps. Owns who descends from
// whom; the arithmetic of the tree is in branches.js.

import { getJson } from "./api.js";
import { family, segments } from "./branches.js";
import { meanLogprob } from "./records.js";
import { Run } from "./run.js";

// Dispatches "change".
export class Forest extends EventTarget {
  constructor() {
    super();
    this.runs = new Map();
  }

  add(run) {
    const note = () => {
      if (!run.id) return;
      if (!this.runs.has(run.id)) this.runs.set(run.id, run);
      this.dispatchEvent(new Event("change"));
    };
    run.addEventListener("change", note);
    note();
    return run;
  }

  // Fetches the ancestors and descendants of a stream that the page has not seen.
  async complete(id, mode) {
    const summary = await getJson(`v1/streams/${id}`).catch(() => null);
    if (!summary) return;
    const wanted = [...summary.children, ...(summary.parent ? [summary.parent.id] : [])];
    if (!this.runs.has(id)) {
      const run = this.add(Run.attach(mode, id, summary.parent));
      await run.ended;
    }
    await Promise.all(wanted.filter((other) => !this.runs.has(other)).map((other) => this.complete(other, mode)));
  }

  // {root, streams, segments} of the family of a run; null: it has no id yet.
  tree(id) {
    const streams = [...this.runs.values()].map((run) => ({
      id: run.id, parent: run.parent, length: run.records.length,
    }));
    const ids = family(streams, id);
    if (!ids.length) return null;
    const own = streams.filter((each) => ids.includes(each.id));
    return { root: ids[0], size: ids.length, segments: segments(own, ids[0]) };
  }

  // What a segment says: {text, mean}.
  segment({ id, from, to }) {
    const records = this.runs.get(id).records.slice(from, to);
    return { text: records.map(({ text }) => text).join(""), mean: meanLogprob(records), records };
  }
}
