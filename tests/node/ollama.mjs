// Ollama's npm client against a live server; prints what it saw as one line of JSON.
// usage: node ollama.mjs BASE_URL MODEL

import { Ollama } from "ollama";

const [baseURL, model] = process.argv.slice(2);
const client = new Ollama({ host: baseURL.replace(/\/v1$/, "") });
const request = { model, messages: [{ role: "user", content: "hello" }], options: { temperature: 0, num_predict: 12 } };
const seen = {};

seen.models = (await client.list()).models.map((one) => one.name);
seen.whole = (await client.chat(request)).message.content;
seen.streamed = "";
for await (const part of await client.chat({ ...request, stream: true })) {
  seen.streamed += part.message.content;
  seen.done = part.done_reason;
}
seen.generated = (await client.generate({ model, prompt: "hello", options: request.options })).response;
try {
  await client.chat({ ...request, model: "none" });
} catch (error) {
  seen.error = [error.status_code, error.error];
}
const abandoned = await client.chat({ ...request, options: { num_predict: 500 }, stream: true });
for await (const _ of abandoned) break;
abandoned.abort();
seen.after = (await client.chat(request)).message.content;

console.log(JSON.stringify(seen));
