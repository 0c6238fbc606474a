// The page's arithmetic in node, without a browser.

import assert from "node:assert/strict";
import test from "node:test";

const ui = (name) => import(new URL(`../../server/api/ui/${name}.js`, import.meta.url));
const { frameParser } = await ui("frames");
const { emptyRun, meanLogprob, merge, pace, sharesOfText } = await ui("records");
const { heightOf, legend, levelOf, MEASURES, percent, tokenClass, visible } = await ui("measures");
const { cutBy, removals } = await ui("cuts");
const { firstDifference, sameLength } = await ui("difference");
const { family, rows, segments } = await ui("branches");
const { factsOf } = await ui("facts");
const { fromFragment, toFragment } = await ui("link");
const { asCurl, asPython, python } = await ui("samples");
const { fromFile, toFile } = await ui("archive");
const { labelled, parseMetrics, sample } = await ui("gauges");
const { allFields, defaultSettings, differing, settingFields, settingsOf } = await ui("settings");

const bytes = (text) => [...new TextEncoder().encode(text)];

test("frames come out whole, however they are cut", () => {
  const text = ": ping\n\ndata: {\"a\": 1}\n\nid: 2\ndata: [DONE]\n\n";
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parse = frameParser();
    assert.deepEqual([...parse(text.slice(0, cut)), ...parse(text.slice(cut))], ["{\"a\": 1}", "[DONE]"]);
  }
  const parse = frameParser();
  assert.deepEqual([...text].flatMap((character) => parse(character)), ["{\"a\": 1}", "[DONE]"]);
});

const completion = (tokens, more = {}) => ({
  id: "cmpl-1",
  choices: [{
    index: 0, text: tokens.join(""), finish_reason: null, ...more,
    logprobs: {
      tokens, token_logprobs: tokens.map(() => -1), token_id: tokens.map((_, i) => i),
      bytes: tokens.map(bytes), time_ms: tokens.map((_, i) => 10 * i), rank: tokens.map(() => 0),
      alternatives: tokens.map((token) => [{ token, token_id: 0, bytes: bytes(token), p_raw: 0.5, p_sampled: 1 }]),
    },
  }],
});

test("the events of a completion add up to text, records and facts", () => {
  const run = emptyRun();
  merge(run, { id: "cmpl-1", choices: [], prompt_progress: { processed: 3, total: 4 } });
  merge(run, completion([" a"], { seed: 7, prompt: { text: "x", token_ids: [1] } }));
  assert.equal(merge(run, completion([" b"])), 1);
  merge(run, { id: "cmpl-1", choices: [], timings: { predicted_n: 2 } });
  merge(run, "[DONE]");
  assert.equal(run.text, " a b");
  assert.deepEqual(run.records.map(({ text }) => text), [" a", " b"]);
  assert.deepEqual([run.id, run.seed, run.prompt.text, run.nEvents, run.done], ["cmpl-1", 7, "x", 5, true]);
  assert.deepEqual(run.records[0].alternatives, [{ text: " a", id: 0, pRaw: 0.5, pSampled: 1 }]);
});

test("a rewind drops tokens and text, and says from where on the view is old", () => {
  const run = emptyRun();
  merge(run, completion(["é", "b", "c"]));
  merge(run, { choices: [], control: { action: "pause", completion_tokens: 3 } });
  assert.equal(run.paused, true);
  assert.equal(merge(run,
    { choices: [], control: { action: "rewind", tokens: 2, text_characters: 1, completion_tokens: 1 } }), 1);
  merge(run, { choices: [], control: { action: "resume", completion_tokens: 1 } });
  merge(run, completion(["d"]));
  assert.deepEqual([run.text, run.paused, run.records.length], ["éd", false, 2]);
});

test("the events of a chat have reasoning, content and calls in their order", () => {
  const run = emptyRun();
  const entry = (token) => ({ token, logprob: -1, bytes: bytes(token), top_logprobs: [] });
  const event = (delta, logprobs) =>
    ({ id: "chatcmpl-1", choices: [{ index: 0, delta, logprobs, finish_reason: null }] });
  merge(run, event({ role: "assistant", content: "" }, null));
  merge(run, event({ reasoning_content: "hm" }, { reasoning_content: [entry("<think>"), entry("hm")] }));
  merge(run, event({ content: "Hi" }, { content: [entry("Hi")] }));
  assert.equal(run.text, "Hi");
  assert.deepEqual(run.records.map(({ part, text }) => [part, text]),
    [["reasoning", ""], ["reasoning", "hm"], ["content", "Hi"]]);
});

test("an error in the stream ends it", () => {
  const run = emptyRun();
  merge(run, { error: { message: "out of memory" } });
  assert.deepEqual([run.error, run.done], ["out of memory", true]);
});

test("the tokens of an event share its text", () => {
  assert.deepEqual(sharesOfText([bytes("a"), bytes("<end>")], "a"), ["a", ""]);
  const [first, second] = bytes("é").map((byte) => [byte]);
  assert.deepEqual(sharesOfText([first, second], "é"), ["", "é"]);
  assert.deepEqual(sharesOfText([[1, 2]], "x"), ["x"]);
});

test("means and paces leave out what is inherited", () => {
  const records = [{ logprob: -9, timeMs: 900 }, { logprob: -1, timeMs: 10 }, { logprob: -3, timeMs: 30 }];
  assert.equal(meanLogprob(records, 1), -2);
  assert.equal(meanLogprob([]), null);
  assert.equal(pace(records, 1), 50);
  assert.equal(pace(records, 2), null);
});

test("surprisal becomes a level", () => {
  const record = (p) => ({ logprob: Math.log(p), part: "content" });
  assert.ok(Math.abs(MEASURES.surprisal.value(record(0.25)) - 2) < 1e-12);
  assert.equal(tokenClass("surprisal", record(0.9)), "l0");
  assert.equal(tokenClass("surprisal", record(0.3)), "l2");
  assert.equal(tokenClass("surprisal", record(1e-6)), "l5");
  assert.equal(tokenClass("draft", { draft: { origin: "ngram" } }), "o-ngram");
  assert.equal(tokenClass("draft", { draft: { origin: "injected" } }), "o-you");
  assert.equal(tokenClass("draft", { draft: { origin: "mtp" } }), "o-mtp");
  assert.ok(legend("draft").some((each) => each.class === "o-mtp" && each.text === "MTP block"));
  assert.equal(tokenClass("time", { timeMs: 12 }, { timeMs: 1 }), "l3");
  assert.equal(tokenClass("time", { timeMs: 12 }, undefined), "l0");
  assert.equal(levelOf("rank", 0), 0);
  assert.equal(levelOf("entropy", null), 0);
});

test("each level stands in the legend", () => {
  for (const name of Object.keys(MEASURES)) assert.equal(legend(name).length, name === "draft" ? 9 : 6);
  assert.deepEqual(legend("rank").map(({ text }) => text), ["#1", "#2", "#3–4", "#5–10", "#11–50", "#51+"]);
  assert.equal(legend("surprisal").at(-1).text, "8+");
});

test("a height grows with the value and stays within the curve", () => {
  const heights = [0, 1, 3, 10, 100].map((value) => heightOf("surprisal", value));
  assert.deepEqual(heights, [...heights].sort((a, b) => a - b));
  assert.ok(heights.every((height) => height >= 0 && height <= 1));
});

test("numbers and white space are readable", () => {
  assert.deepEqual([0, 1e-6, 0.0042, 0.5, 0.99999].map(percent), ["0", "< 0.01", "0.42", "50.0", "100"]);
  assert.equal(visible(" a\n"), "␣a↵");
});

test("what removed an alternative is said only if the trace proves it", () => {
  const step = (stage, removed, first = false) => ({ stage, n_removed: removed, removed_argmax: first });
  const trace = [step("penalties", 0), step("top_k", 60), step("top_p", 30)];
  assert.deepEqual(removals(trace, 100).map(({ stage, left }) => [stage, left]), [["top_k", 40], ["top_p", 10]]);
  assert.equal(cutBy(trace, 50, 100), "top_k");
  assert.equal(cutBy(trace, 12, 100), "top_p");
  assert.equal(cutBy(trace, 5, 100), null);
  assert.equal(cutBy([step("typical", 30)], 1, 100), "typical");
  assert.equal(cutBy([step("typical", 30), step("top_p", 3)], 1, 100), null);
});

test("two texts part at their first different token", () => {
  const ids = (...list) => list.map((id) => ({ id }));
  assert.equal(sameLength(ids(1, 2, 3), ids(1, 2)), 2);
  assert.equal(firstDifference(ids(1, 2, 3), ids(1, 5)), 1);
  assert.equal(firstDifference(ids(1, 2, 3), ids(1, 2)), null);
  assert.equal(firstDifference(ids(1, 2, 3), ids(1, 2), { ended: true }), 2);
  assert.equal(firstDifference(ids(1), ids(1), { ended: true }), null);
});

const stream = (id, length, parent = null, at = 0) => ({ id, length, parent: parent && { id: parent, at } });

test("branches that leave a stream cut it into segments", () => {
  const streams = [stream("a", 20), stream("b", 15, "a", 5), stream("c", 12, "a", 5), stream("d", 30, "a", 10),
    stream("e", 9, "b", 8)];
  assert.deepEqual(family(streams, "e"), ["a", "b", "c", "d", "e"]);
  const said = rows(segments(streams, "a"))
    .map(({ segment: { id, from, to }, depth }) => `${depth} ${id} ${from}-${to}`);
  assert.deepEqual(said, [
    "0 a 0-5", "1 a 5-10", "2 a 10-20", "2 d 10-30", "1 b 5-8", "2 b 8-15", "2 e 8-9", "1 c 5-12",
  ]);
});

test("a branch at the beginning or at the end is a segment too", () => {
  const said = (streams) => rows(segments(streams, "a")).map(({ segment: { id, from, to } }) => `${id} ${from}-${to}`);
  assert.deepEqual(said([stream("a", 4), stream("b", 6, "a", 0)]), ["a 0-0", "a 0-4", "b 0-6"]);
  assert.deepEqual(said([stream("a", 4), stream("b", 6, "a", 4)]), ["a 0-4", "b 4-6"]);
  assert.deepEqual(said([stream("a", 4)]), ["a 0-4"]);
  assert.deepEqual(family([stream("b", 6, "gone", 0)], "b"), ["b"]);
});

test("a request survives a link", () => {
  const request = { mode: "prompt", prompt: "Schöne ✓ \n+/=?&#", temperature: 1.2, seed: 7 };
  assert.deepEqual(fromFragment(toFragment(request)), request);
  assert.match(toFragment(request), /^#r=[\w-]+$/);
  for (const wrong of ["", "#r=%%", "#x", "#r=W10"]) assert.equal(fromFragment(wrong), null);
});

test("the top line says how a stream came about", () => {
  const data = { ...emptyRun(), progress: { processed: 512, total: 841, eta_ms: 1234 } };
  const run = { data, state: "prefilling", isLive: true, records: [], from: 0 };
  const of = (more, queue) => Object.fromEntries(factsOf({ ...run, ...more }, queue));
  assert.equal(of({}).state, "reading the prompt, 512 of 841, 1.2 s left");
  assert.equal(of({ state: "queued" }, 3).state, "waiting, 3 in the queue");
  const records = [-1, -3].map((logprob, i) =>
    ({ logprob, timeMs: 10 * i + 5, draft: { origin: i ? "ngram" : "model" } }));
  const cache = { reused: 3, wanted: 8, source: "active", reason: "differs at token 3" };
  const said = of({ state: "running", records, data: { ...data, cache, seed: 7 } });
  assert.equal(said["first token"], "5.0 ms");
  assert.equal(said.speed, "100 tok/s");
  assert.equal(said.prompt, "3 of 8 cached, differs at token 3");
  assert.equal(said.drafts, "1 of 2 tokens");
  assert.equal(said["mean logprob"], "-2.00");
  const done = { ...data, stop: { kind: "length" }, speculation: { drafted: 4, accepted: 3 } };
  const ended = of({ state: "ended", isLive: false, records, data: done });
  assert.deepEqual([ended.state, ended.drafts], ["ready · max tokens reached", "3 of 4 right"]);
});

test("code says the request, and never the key", () => {
  const body = { prompt: "it's", max_tokens: 3, seed: 7, min_p: 0.1, include: ["probs"], stream: true };
  assert.ok(asCurl("http://h", "v1/completions", body, false).includes("it'\\''s"));
  assert.ok(asCurl("http://h", "v1/completions", body, true).includes("$SOLITON_API_KEY"));
  const text = asPython("http://h", "v1/completions", body, false);
  assert.ok(text.includes("    seed=7,") && text.includes("extra_body={\"min_p\": 0.1, \"include\": [\"probs\"]}"));
  assert.equal(python([null, true, { a: "b" }]), "[None, True, {\"a\": \"b\"}]");
});

test("an exported run comes back, and other files are refused", () => {
  const run = { ...emptyRun(), id: "x", text: "a", records: [{ text: "a", logprob: -1 }] };
  const { mode, request, run: back } = fromFile(toFile("chat", { messages: [] }, run));
  assert.deepEqual([mode, request, back.records[0].text], ["chat", { messages: [] }, "a"]);
  assert.throws(() => fromFile("{"), /not JSON/);
  assert.throws(() => fromFile("{}"), /not a run/);
  assert.throws(() => fromFile("{\"format\": \"soliton-run\", \"version\": 2}"), /version 2/);
  assert.throws(() => fromFile("{\"format\": \"soliton-run\", \"version\": 1}"), /no token records/);
});

test("metrics become rates", () => {
  const text = (n) => [
    "# HELP x", `soliton_completion_tokens_total ${n}`, "soliton_queue_length 3.0",
    "soliton_draft_tokens_total{origin=\"ngram\"} 10", `soliton_draft_tokens_accepted_total{origin="ngram"} ${n / 10}`,
    "soliton_prefix_cache_lookups_total{source=\"active\"} 2", "soliton_x_bucket{le=\"1\"} 9",
  ].join("\n");
  const now = parseMetrics(text(150));
  assert.equal(now.soliton_x_bucket, undefined);
  const said = sample(parseMetrics(text(100)), now, 2);
  assert.deepEqual([said.rate, said.queue, said.drafts, said.speed], [25, 3, null, null]);
  assert.deepEqual(labelled(text(1), "soliton_prefix_cache_lookups_total", "source"), { active: 2 });
});

test("a body has what differs from the server's own settings", () => {
  const defaults = defaultSettings({ temperature: 0.7, top_p: 0.9 });
  const settings = { ...defaults, temperature: 1.2, seed: 7, stop: ["\n"] };
  assert.deepEqual(settingFields(settings, defaults), { max_tokens: 200, temperature: 1.2, seed: 7, stop: ["\n"] });
  assert.deepEqual(settingsOf(settingFields(settings, defaults), defaults), settings);
  assert.equal(allFields(defaults).temperature, 0.7);
  assert.equal(differing(settings, defaults), "temperature 1.2");
});

test("an order and a constraint are sent, read from a link, and named where they differ", () => {
  const defaults = defaultSettings();
  const written = "{\"type\":\n\"boolean\"}";
  const settings = { ...defaults, sampler_order: ["top_p", "temperature"], structured_outputs: { json: written } };
  const fields = settingFields(settings, defaults);
  assert.deepEqual(fields.structured_outputs, { json: { type: "boolean" } });
  assert.deepEqual(fields.sampler_order, ["top_p", "temperature"]);
  assert.equal(JSON.parse(settingsOf(fields, defaults).structured_outputs.json).type, "boolean");
  assert.deepEqual(settingsOf(settings, defaults), settings, "what is kept stays as it was written");
  const broken = { ...defaults, structured_outputs: { json: "{" } };
  assert.deepEqual(settingFields(broken, defaults).structured_outputs, { json: "{" }, "the server says what is wrong");
  assert.deepEqual([allFields(defaults).sampler_order, allFields(defaults).structured_outputs], [null, null]);
  assert.equal(differing(settings, defaults), "top_p → temperature, a constraint (json)");
});

test("the progress of a prompt has the seconds left once the server knows them", () => {
  const run = (eta) => ({
    state: "prefilling", isLive: true, records: [], from: 0, parent: null,
    data: { ...emptyRun(), progress: { processed: 512, total: 900, eta_ms: eta } },
  });
  const said = (eta) => factsOf(run(eta))[0][1];
  assert.equal(said(1540), "reading the prompt, 512 of 900, 1.5 s left");
  assert.equal(said(null), "reading the prompt, 512 of 900");
});
