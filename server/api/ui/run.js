// One stream, from its request to its end. Owns its requests and its state; what its events mean is
// in records.js, and what it looks like is somewhere else.

import { ApiError, getJson, postJson, request } from "./api.js";
import { readFrames } from "./frames.js";
import { emptyRun, merge } from "./records.js";

const ALTERNATIVES = 8;
const INCLUDE = [
  "token_ids", "bytes", "probs", "rank", "entropy", "kept_mass", "draft", "trace", "special", "time",
  "seed", "cache", "prompt", "stop", "timings", "speculation", "progress",
];
const RETRIES_MS = [100, 300, 1000, 2000, 4000, 8000];
const PATHS = { prompt: "v1/completions", chat: "v1/chat/completions" };

export const pathOf = (mode) => PATHS[mode];

// What makes an answer describe its tokens.
export function described(mode) {
  const logprobs = mode === "chat" ? { logprobs: true, top_logprobs: ALTERNATIVES } : { logprobs: ALTERNATIVES };
  return { stream: true, ...logprobs, include: INCLUDE };
}

// Dispatches "change" at most once a frame, and "end".
export class Run extends EventTarget {
  constructor(mode, { parent = null, data = emptyRun() } = {}) {
    super();
    this.mode = mode;
    this.parent = parent; // {id, at}
    this.data = data;
    this.isKept = true;
    this.changedFrom = 0;
    this.faultyField = null; // of the request, as the server names it
    this.state = "new";
    this.ended = new Promise((resolve) => { this.resolve = resolve; });
  }

  // `fields`: the body without what every request of the page has.
  static start(mode, fields) {
    const run = new Run(mode);
    const body = { ...fields, ...described(mode), store: true, background: true };
    run.begin(PATHS[mode], { ...body, metadata: { page: run.tag() } });
    return run;
  }

  // A stream that the server keeps, from its first event on.
  static attach(mode, id, parent = null) {
    const run = new Run(mode, { parent });
    run.data.id = id;
    run.follow();
    return run;
  }

  static imported(mode, data) {
    const run = new Run(mode, { parent: data.branch ?? null, data: { ...emptyRun(), ...data, done: true } });
    run.state = "ended";
    run.isKept = false;
    run.resolve();
    return run;
  }

  get id() { return this.data.id; }
  get records() { return this.data.records; }
  get isLive() { return !["ended", "failed", "new"].includes(this.state); }

  // Where its own tokens begin.
  get from() { return this.parent?.at ?? 0; }

  // Until the server has said something of it.
  answered() {
    return new Promise((resolve) => {
      const look = () => { if (!["queued", "connecting"].includes(this.state)) resolve(); };
      this.addEventListener("change", look);
      look();
    });
  }

  tag() {
    this.nonce ??= crypto.getRandomValues(new Uint32Array(2)).join("-");
    return this.nonce;
  }

  // `fields`: token_id or text, and settings.
  branch(at, fields) {
    const run = new Run(this.mode, { parent: { id: this.id, at } });
    const metadata = { page: run.tag() };
    run.begin(`v1/streams/${this.id}/branch`, { at, ...described(this.mode), metadata, ...fields });
    return run;
  }

  peek(at, fields) {
    return postJson(`v1/streams/${this.id}/peek`, { at, ...fields });
  }

  control(action, fields = {}) {
    return postJson(`v1/streams/${this.id}/control`, { action, ...fields });
  }

  async stop() {
    if (!this.isLive) return;
    if (!this.isKept) {
      this.abort.abort();
      return;
    }
    if (!this.id) return this.forget();
    // It may have ended meanwhile.
    await this.control("stop").catch((error) => { if (error.status !== 409) throw error; });
  }

  // Still in the queue, so nothing has said its id: it is found by its tag.
  async forget() {
    const { data } = await getJson("v1/streams?limit=100");
    const own = data.find(({ metadata, state }) => metadata.page === this.nonce && state !== "ended");
    if (own) await request(`v1/streams/${own.id}`, { method: "DELETE" });
    this.abort.abort();
  }

  async begin(path, body) {
    this.turn("queued");
    this.abort = new AbortController();
    try {
      await this.read(await this.asked(path, body));
    } catch (error) {
      if (this.id && this.isKept && !(error instanceof ApiError)) await this.follow();
      else this.fail(error);
    }
  }

  // A server that keeps no streams refuses one in the background; the page then does without.
  async asked(path, body) {
    const { signal } = this.abort;
    try {
      return await request(path, { body, signal });
    } catch (error) {
      if (error.param !== "background") throw error;
      const { store, background, metadata, ...rest } = body;
      this.isKept = false;
      return request(path, { body: rest, signal });
    }
  }

  // The events that it has not seen, again and again if the connection breaks.
  async follow() {
    this.abort ??= new AbortController();
    for (const wait of RETRIES_MS) {
      this.turn("connecting");
      try {
        const path = `v1/streams/${this.id}/events?starting_after=${this.data.nEvents}`;
        await this.read(await request(path, { signal: this.abort.signal }));
        return;
      } catch (error) {
        if (error instanceof ApiError || this.abort.signal.aborted) {
          this.fail(error);
          return;
        }
      }
      await new Promise((resolve) => { setTimeout(resolve, wait); });
    }
    this.fail(new Error("the connection is lost; reload the page to go on"));
  }

  async read(response) {
    for await (const batch of readFrames(response)) this.take(batch);
    if (!this.data.done) throw new TypeError("the connection was closed before the end");
    if (this.data.error) this.fail(new Error(this.data.error));
    else this.turn("ended");
  }

  take(batch) {
    for (const data of batch) {
      const kept = merge(this.data, data === "[DONE]" ? data : JSON.parse(data));
      this.changedFrom = Math.min(this.changedFrom, kept);
    }
    const { progress, records, paused } = this.data;
    this.parent ??= this.data.branch;
    const isPrefilling = !records.length && progress && progress.processed < progress.total;
    this.turn(paused ? "paused" : isPrefilling ? "prefilling" : "running");
  }

  fail(error) {
    const isStopped = this.abort?.signal.aborted;
    this.data.error = isStopped ? null : error.message;
    this.faultyField = isStopped ? null : error.param ?? null;
    this.turn(isStopped ? "ended" : "failed");
  }

  turn(state) {
    this.state = state;
    if (!this.isLive) {
      this.resolve();
      this.dispatchEvent(new Event("end"));
    }
    if (this.isPainting) return;
    this.isPainting = true;
    requestAnimationFrame(() => {
      this.isPainting = false;
      const from = this.changedFrom;
      this.changedFrom = this.records.length;
      this.dispatchEvent(new CustomEvent("change", { detail: { from } }));
    });
  }
}
