// The top line: how the stream came about. Owns its words; the numbers are the server's.

import { h, setText } from "./dom.js";
import { originOf } from "./measures.js";
import { meanLogprob, pace } from "./records.js";

const STATES = {
  new: "ready", queued: "waiting for the engine", connecting: "connecting", prefilling: "reading the prompt",
  running: "writing", paused: "paused", ended: "ready", failed: "failed",
};
const ENDS = {
  stop_token: "ended by the model", stop_string: "ended by a stop text", length: "max tokens reached",
  time: "time is up",
  constraint: "complete", banned: "banned strings left no way", control: "stopped", stop: "stopped",
};

export class Facts {
  constructor(element) {
    this.element = element;
    this.cells = new Map();
    this.values = new Map();
  }

  show(run, { queue = null } = {}) {
    const said = run ? factsOf(run, queue) : [["state", "ready", ""]];
    for (const [name, value, title] of said) this.cell(name, value, title);
    for (const [name, cell] of this.cells) {
      cell.hidden = !said.some(([other]) => other === name);
    }
    this.element.dataset.state = run?.state ?? "new";
  }

  cell(name, value, title) {
    if (!this.cells.has(name)) {
      const dd = h("dd");
      this.values.set(name, dd);
      this.cells.set(name, h("div", { "data-fact": name }, h("dt", {}, name), dd));
      this.element.append(this.cells.get(name));
    }
    setText(this.values.get(name), value);
    this.cells.get(name).title = title ?? "";
  }
}

// [[name, value, title]]
export function factsOf(run, queue = null) {
  const { data, state, records } = run;
  const facts = [["state", stateText(run, queue), data.error ?? ""]];
  const first = records[run.from]?.timeMs;
  const add = (name, value, title) => facts.push([name, value, title]);
  if (Number.isFinite(first)) {
    add("first token", milliseconds(first), "from the arrival of the request, the wait for the engine included");
  }
  const rate = speed(run);
  if (rate !== null) add("speed", `${rate.toFixed(rate < 100 ? 1 : 0)} tok/s`, "tokens per second after the first");
  if (data.cache) add("prompt", promptText(data.cache) + whyNotMore(data.cache), data.cache.reason);
  if (data.speculation) {
    add("drafts", draftText(data.speculation), "guessed tokens that came true, of those that were checked");
  } else if (records.length > run.from) {
    add("drafts", liveDrafts(records.slice(run.from)), "tokens that a draft had guessed");
  }
  const mean = meanLogprob(records, run.from);
  if (mean !== null) add("mean logprob", mean.toFixed(2), `natural logarithm; perplexity ${Math.exp(-mean).toFixed(2)}`);
  if (records.length) add("tokens", String(records.length), `${run.from} of them inherited`);
  if (data.seed !== null) add("seed", String(data.seed), "the same seed and settings give the same text");
  return facts;
}

function stateText({ state, data, isLive }, queue) {
  if (state === "queued" && queue) return `waiting, ${queue} in the queue`;
  if (state === "prefilling") {
    const { processed, total, eta_ms: eta } = data.progress;
    const left = eta === null ? "" : `, ${(eta / 1000).toFixed(1)} s left`;
    return `reading the prompt, ${processed} of ${total}${left}`;
  }
  const end = data.stop?.kind ?? data.finish;
  return !isLive && end && state !== "failed" ? `ready · ${ENDS[end] ?? `ended by ${end}`}` : STATES[state];
}

function speed({ data, records, from }) {
  const { timings } = data;
  return timings && timings.predicted_n > 1 ? timings.predicted_per_second : pace(records, from);
}

export function promptText({ reused, wanted, source }) {
  if (wanted === 0) return "one token";
  const where = { active: "", memory: " from memory", disk: " from disk" }[source] ?? "";
  return `${reused} of ${wanted} cached${where}`;
}

const whyNotMore = ({ reused, wanted, reason }) => (
  reused < wanted && reason !== "nothing cached" ? `, ${reason}` : "");

function draftText({ drafted, accepted }) {
  return drafted ? `${accepted} of ${drafted} right` : "none";
}

function liveDrafts(records) {
  const guessed = records.filter((record) => !["model", "you", null].includes(originOf(record))).length;
  return `${guessed} of ${records.length} tokens`;
}

const milliseconds = (ms) =>
  (ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`);
