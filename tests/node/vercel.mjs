// The Vercel AI SDK against a live server; prints what it saw as one line of JSON.
// usage: node vercel.mjs BASE_URL MODEL

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, name] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "soliton",
  baseURL,
  apiKey: "key",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider(name);
const ask = { prompt: "A story about a frog, please.", maxOutputTokens: 16, temperature: 0, maxRetries: 0 };
const seen = {};

async function streamed(request) {
  const result = streamText(request);
  let text = "";
  for await (const delta of result.textStream) text += delta;
  return { text, finishReason: await result.finishReason, usage: await result.usage };
}

async function errorOf(request) {
  try {
    await generateText({ ...ask, model, ...request });
  } catch (error) {
    const data = error.data?.error ?? {};
    return [error.name, error.statusCode, data.code, data.param, error.isRetryable];
  }
}

const whole = await generateText({ ...ask, model });
seen.whole = { text: whole.text, finishReason: whole.finishReason, usage: whole.usage };
seen.warnings = whole.warnings;
seen.streamed = await streamed({ ...ask, model });

const legacy = { ...ask, model: provider.completionModel(name), prompt: "Once upon a time" };
const written = await generateText(legacy);
seen.completion = { text: written.text, usage: written.usage };
seen.completionStreamed = await streamed(legacy);

const schema = z.object({ name: z.string().max(12), legs: z.number().int().min(0).max(8) }).strict();
const draw = { ...ask, model, maxOutputTokens: 300, temperature: 1, seed: 7 };
seen.object = (await generateObject({ ...draw, schema })).object;
const growing = streamObject({ ...draw, schema });
seen.partialObjects = 0;
for await (const _ of growing.partialObjectStream) seen.partialObjects += 1;
seen.objectStreamed = await growing.object;

const animal = tool({ description: "Notes an animal.", inputSchema: schema });
const call = { ...draw, tools: { animal }, toolChoice: { type: "tool", toolName: "animal" } };
const inputs = (calls) => calls.map(({ toolName, input }) => [toolName, input]);
const called = await generateText(call);
seen.calls = inputs(called.toolCalls);
seen.callsFinishReason = called.finishReason;
const calling = streamText(call);
await calling.consumeStream();
seen.callsStreamed = inputs(await calling.toolCalls);

seen.errors = [
  await errorOf({ model: provider("none") }),
  await errorOf({ maxOutputTokens: 1e6 }),
  await errorOf({ temperature: -1 }),
];
console.log(JSON.stringify(seen));
