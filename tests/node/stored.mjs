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

// What only this server tells passes through the client as it is, in whole answers and in chunks.
const told_more = { model, max_tokens: 24, seed: 3, token_healing: true, banned_strings: ["the", "was"],
  prompt: "Once upon a ti", include: ["suppressed", "healed"] };
const whole = (await client.completions.create(told_more)).choices[0];
seen.whole = { text: whole.text, suppressed: whole.suppressed, healed: whole.healed };
seen.streamed = { text: "", suppressed: [], healed: undefined };
for await (const chunk of await client.completions.create({ ...told_more, stream: true })) {
  for (const choice of chunk.choices) {
    seen.streamed.text += choice.text;
    seen.streamed.suppressed.push(...(choice.suppressed ?? []));
    seen.streamed.healed ??= choice.healed;
  }
}
const asked = { model, max_completion_tokens: 24, seed: 3, banned_strings: ["the", "was"], include: ["suppressed"],
  messages: [{ role: "user", content: "A story about a frog, please." }] };
seen.chat = (await chats.create(asked)).choices[0].suppressed;
seen.chatStreamed = [];
for await (const chunk of await chats.create({ ...asked, stream: true })) {
  for (const choice of chunk.choices) seen.chatStreamed.push(...(choice.suppressed ?? []));
}

console.log(JSON.stringify(seen));
