// Anthropic's npm client against a live server; prints what it saw as one line of JSON.
// usage: node anthropic.mjs BASE_URL MODEL

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const [baseURL, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey: "-", maxRetries: 0 });
const messages = [{ role: "user", content: "A story about a frog, please." }];
const request = { model, max_tokens: 20, messages };
const seen = {};

const whole = await client.messages.create({ ...request, temperature: 0 });
seen.whole = whole.content;
seen.usage = whole.usage;
const stream = client.messages.stream({ ...request, temperature: 0 });
seen.streamed = "";
stream.on("text", (text) => (seen.streamed += text));
seen.final = (await stream.finalMessage()).content;
seen.counted = (await client.messages.countTokens({ model, messages })).input_tokens;

seen.errors = [];
for (const wrong of [{ model: "none" }, { messages: [] }]) {
  try {
    await client.messages.create({ ...request, ...wrong });
  } catch (error) {
    seen.errors.push([error.constructor.name, error.status, error.error.error.type]);
  }
}

seen.asked = [];
const clock = betaTool({
  name: "clock",
  description: "The time.",
  inputSchema: {
    type: "object",
    properties: { zone: { enum: ["UTC", "CET"] } },
    required: ["zone"],
    additionalProperties: false,
  },
  run: (input) => {
    seen.asked.push(input.zone);
    return "noon";
  },
});
const runner = client.beta.messages.toolRunner({
  ...request, max_tokens: 200, tools: [clock], max_iterations: 2,
  tool_choice: { type: "any", disable_parallel_tool_use: true },
});
for await (const message of runner) seen.last = message.stop_reason;

console.log(JSON.stringify(seen));
