// A streamed chat with OpenAI's npm package.

import OpenAI from "openai";

const client = new OpenAI({ baseURL: "http://127.0.0.1:8000/v1", apiKey: "none" });
const model = (await client.models.list()).data[0].id;

const stream = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "A story about a frog, please." }],
  max_completion_tokens: 60,
  seed: 7,
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0].delta.content ?? "");
process.stdout.write("\n");
