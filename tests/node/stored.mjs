// Stored chat completions through the official npm client; prints what it saw as one line of JSON.
// usage: node stored.mjs BASE_URL MODEL

import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "-", maxRetries: 0 });
const chats = client.chat.completions;
const seen = {};

const told = await chats.create({
  model,
  messages: [{ role: "user", content: "A story about a frog, please." }],
  max_completion_tokens: 8,
  store: true,
  metadata: { topic: "frogs" },
});
seen.id = told.id;
seen.told = told.choices;
seen.retrieved = (await chats.retrieve(told.id)).choices;
seen.listed = [];
for await (const one of chats.list({ metadata: { topic: "frogs" }, limit: 1 })) seen.listed.push(one.id);
seen.messages = [];
for await (const one of chats.messages.list(told.id)) seen.messages.push([one.role, one.content]);
seen.updated = (await chats.update(told.id, { metadata: { kind: "story" } })).metadata;
seen.deleted = (await chats.delete(told.id)).deleted;
try {
  await chats.retrieve(told.id);
} catch (error) {
  seen.after = [error.constructor.name, error.status];
}

console.log(JSON.stringify(seen));
