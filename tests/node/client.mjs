// The official npm client against a live server; prints what it saw as one line of JSON.
// usage: node client.mjs BASE_URL MODEL

import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "-", maxRetries: 0 });
const messages = [{ role: "user", content: "A story about a frog, please." }];
const limits = { model, temperature: 0 };
const seen = {};

seen.models = (await client.models.list()).data.map((item) => item.id);

const completion = { ...limits, prompt: "Once upon a time", max_tokens: 20, logprobs: 2 };
const wholeText = await client.completions.create(completion);
seen.completion = wholeText.choices[0].text;
seen.completionTokens = wholeText.choices[0].logprobs.tokens;
seen.completionStreamed = "";
seen.completionStreamedTokens = [];
for await (const chunk of await client.completions.create({ ...completion, stream: true })) {
  seen.completionStreamed += chunk.choices[0].text;
  seen.completionStreamedTokens.push(...chunk.choices[0].logprobs.tokens);
}

const chat = { ...limits, messages, max_completion_tokens: 20, logprobs: true };
const whole = await client.chat.completions.create(chat);
seen.chat = whole.choices[0].message.content;
seen.chatStreamed = "";
const options = { ...chat, stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create(options)) {
  seen.chatStreamed += chunk.choices[0]?.delta.content ?? "";
  seen.usage = chunk.usage;
}
seen.wholeUsage = whole.usage;
const final = await client.chat.completions.stream(chat).finalChatCompletion();
seen.chatHelper = final.choices[0].message.content;
seen.chatHelperRole = final.choices[0].message.role;

seen.errors = [];
for (const wrong of [{ model: "none" }, { n: 0 }, { max_completion_tokens: 1e6 }]) {
  try {
    await client.chat.completions.create({ ...chat, ...wrong });
  } catch (error) {
    seen.errors.push([error.constructor.name, error.status, error.code, error.param]);
  }
}

const abandoned = await client.chat.completions.create({ ...chat, max_completion_tokens: 200, stream: true });
for await (const _ of abandoned) break;
seen.afterAbandoned = (await client.chat.completions.create(chat)).choices[0].message.content;

console.log(JSON.stringify(seen));
