// The official npm client's Responses against a live server; prints what it saw as one line of JSON.
// usage: node responses.mjs BASE_URL MODEL

import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "-", maxRetries: 0 });
const ask = { model, input: "A story about a frog, please.", temperature: 0, stop: ["."] };
const seen = {};

const whole = await client.responses.create(ask);
seen.whole = whole.output_text;
seen.status = whole.status;
const stream = client.responses.stream(ask);
seen.streamed = "";
stream.on("response.output_text.delta", (event) => (seen.streamed += event.delta));
const final = await stream.finalResponse();
seen.final = final.output_text;
const stored = await client.responses.retrieve(final.id);
seen.stored = stored.output_text;

seen.numbers = [];
for await (const event of await client.responses.retrieve(final.id, { stream: true, starting_after: 3 }))
  seen.numbers.push(event.sequence_number);
seen.items = [];
for await (const item of client.responses.inputItems.list(final.id)) seen.items.push(item.role);

const animal = z.object({ legs: z.number().int().min(0).max(8), mood: z.enum(["happy", "sad"]) });
const parsed = await client.responses.parse({
  model, input: "A frog?", text: { format: zodTextFormat(animal, "animal") },
});
seen.parsed = parsed.output_parsed;

const clock = {
  type: "function",
  name: "clock",
  strict: true,
  parameters: {
    type: "object",
    properties: { zone: { enum: ["UTC", "CET"] } },
    required: ["zone"],
    additionalProperties: false,
  },
};
const called = await client.responses
  .stream({ model, input: "What time is it?", tools: [clock], tool_choice: "required", parallel_tool_calls: false })
  .finalResponse();
seen.call = [called.output[0].type, called.output[0].name, Object.keys(JSON.parse(called.output[0].arguments))];
const output = { type: "function_call_output", call_id: called.output[0].call_id, output: "noon" };
const next = await client.responses.create({
  model, input: [output], previous_response_id: called.id, max_output_tokens: 4,
});
seen.next = [next.previous_response_id === called.id, next.status];

const running = await client.responses.create({ model, input: "x", background: true, ignore_eos: true });
seen.cancelled = [running.status, (await client.responses.cancel(running.id)).status];
await client.responses.delete(running.id);
seen.errors = [];
for (const wrong of [{ model: "none" }, { previous_response_id: "resp_1" }]) {
  try {
    await client.responses.create({ model, input: "x", ...wrong });
  } catch (error) {
    seen.errors.push([error.constructor.name, error.status, error.code]);
  }
}

console.log(JSON.stringify(seen));
