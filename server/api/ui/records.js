// What a stream has said so far. Owns how its events add up to text, token records and facts; knows
// neither the network nor the page.

// A record: text, id, logprob, pRaw, pSampled, rank, entropy (nats), kept, draft, trace, special,
// timeMs, part ("content", "reasoning" or "call") and alternatives [{text, id, pRaw, pSampled}].

export function emptyRun() {
  return {
    id: null, records: [], text: "", nEvents: 0, done: false, paused: false,
    prompt: null, seed: null, cache: null, branch: null, progress: null, finish: null, stop: null,
    timings: null, speculation: null, warnings: [], controls: [], error: null,
  };
}

// Adds one event, parsed, or the text "[DONE]". Returns how many of the first records are as before.
export function merge(run, event) {
  run.nEvents += 1;
  const before = run.records.length;
  if (event === "[DONE]") {
    run.done = true;
    return before;
  }
  if (event.error) {
    run.error = event.error.message;
    run.done = true;
    return before;
  }
  run.id ??= event.id;
  if (event.warnings) run.warnings.push(...event.warnings);
  if (event.branch) run.branch = event.branch;
  if (event.prompt_progress) run.progress = event.prompt_progress;
  if (event.timings) run.timings = event.timings;
  if (event.speculation) run.speculation = event.speculation;
  for (const choice of event.choices ?? []) mergeChoice(run, choice);
  return event.control ? mergeControl(run, event.control) : before;
}

function mergeChoice(run, choice) {
  for (const name of ["seed", "cache", "prompt", "branch"]) run[name] = choice[name] ?? run[name];
  if (choice.finish_reason) run.finish = choice.finish_reason;
  if (choice.stop_detail) run.stop = choice.stop_detail;
  if (choice.delta) {
    mergeDelta(run, choice.delta, choice.logprobs);
    return;
  }
  run.text += choice.text ?? "";
  if (choice.logprobs) addRecords(run, entriesOfLists(choice.logprobs), choice.text, "content");
}

// In a chat, reasoning comes before the content of an event, and calls behind it.
function mergeDelta(run, delta, logprobs) {
  run.text += delta.content ?? "";
  const call = (delta.tool_calls ?? []).map(
    ({ function: { name, arguments: text } = {} }) => (name ?? "") + (text ?? ""),
  ).join("");
  addRecords(run, logprobs?.reasoning_content, delta.reasoning_content, "reasoning");
  addRecords(run, logprobs?.content, delta.content, "content");
  addRecords(run, logprobs?.tool_calls, call, "call");
}

function mergeControl(run, control) {
  run.controls.push(control);
  if (control.action === "pause") run.paused = true;
  if (control.action === "resume" || control.action === "stop") run.paused = false;
  if (control.action !== "rewind") return run.records.length;
  run.records.length = Math.min(run.records.length, control.completion_tokens);
  run.text = [...run.text].slice(0, control.text_characters).join("");
  return run.records.length;
}

function addRecords(run, entries, text, part) {
  if (!entries?.length) return;
  const shares = sharesOfText(entries.map((entry) => entry.bytes), text ?? "");
  entries.forEach((entry, i) => run.records.push(record(entry, shares[i], part)));
}

// Which part of an event's text each of its tokens has. A token that ended the text, or is not
// shown, has none; tokens that share a character give it to the last of them.
export function sharesOfText(bytesOfTokens, text) {
  if (bytesOfTokens.length === 1) return [text];
  const decoder = new TextDecoder();
  let rest = text;
  const shares = bytesOfTokens.map((bytes) => {
    const piece = decoder.decode(Uint8Array.from(bytes ?? []), { stream: true });
    if (!piece || !rest.startsWith(piece)) return "";
    rest = rest.slice(piece.length);
    return piece;
  });
  if (rest) shares[shares.findLastIndex(Boolean) < 0 ? 0 : shares.findLastIndex(Boolean)] += rest;
  return shares;
}

function record(entry, text, part) {
  return {
    text, part,
    name: entry.token,
    id: entry.token_id,
    logprob: entry.logprob,
    pRaw: entry.p_raw,
    pSampled: entry.p_sampled,
    rank: entry.rank,
    entropy: entry.entropy,
    kept: entry.kept_mass,
    draft: entry.draft,
    trace: entry.trace,
    special: entry.special,
    timeMs: entry.time_ms,
    alternatives: (entry.top_logprobs ?? []).map((other) => ({
      text: textOf(other), id: other.token_id, pRaw: other.p_raw, pSampled: other.p_sampled,
    })),
  };
}

function textOf(token) {
  return token.bytes ? new TextDecoder().decode(Uint8Array.from(token.bytes)) : token.token;
}

// A completion's logprobs are parallel lists; a chat's are entries. Returns entries.
function entriesOfLists(lists) {
  return lists.tokens.map((token, i) => ({
    token,
    logprob: lists.token_logprobs[i],
    token_id: lists.token_id?.[i],
    bytes: lists.bytes?.[i],
    p_raw: lists.p_raw?.[i],
    p_sampled: lists.p_sampled?.[i],
    rank: lists.rank?.[i],
    entropy: lists.entropy?.[i],
    kept_mass: lists.kept_mass?.[i],
    draft: lists.draft?.[i],
    trace: lists.trace?.[i],
    special: lists.special?.[i],
    time_ms: lists.time_ms?.[i],
    top_logprobs: lists.alternatives?.[i],
  }));
}

// Natural logarithm, of the records from `from` on; null without any.
export function meanLogprob(records, from = 0) {
  const part = records.slice(from).filter(({ logprob }) => Number.isFinite(logprob));
  return part.length ? part.reduce((sum, { logprob }) => sum + logprob, 0) / part.length : null;
}

// Tokens per second over the newest tokens; null while there are too few. Inherited tokens carry
// the times of another request, so only those from `from` on count.
export function pace(records, from = 0, window = 32) {
  const times = records.slice(from).map(({ timeMs }) => timeMs).filter(Number.isFinite);
  const last = times.slice(-window);
  const ms = last.at(-1) - last[0];
  return last.length > 1 && ms > 0 ? (1000 * (last.length - 1)) / ms : null;
}
