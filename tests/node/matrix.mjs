// JavaScript clients, feature by feature, against a server whose replies are known; prints what each
// saw as one line of JSON.
// usage: node matrix.mjs BASE_URL MODEL

import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const root = baseURL.replace(/\/v1$/, "");
const apiKey = "key";
const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const size = {
  type: "object",
  properties: { size: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["size"],
  additionalProperties: false,
};
const weather = { name: "weather", description: "The weather.", parameters: city };
const tools = [{ type: "function", function: weather }];
const form = { type: "json_schema", json_schema: { name: "size", schema: size } };
const LONG = 400;
const say = (content) => [{ role: "user", content }];

async function nAborted() {
  const lines = (await (await fetch(`${root}/metrics`, { headers })).text()).split("\n");
  const found = lines.find((line) => line.includes('soliton_completions_total{reason="aborted"}'));
  return found ? Number(found.split(" ").at(-1)) : 0;
}

// Whether the engine gave up a long text when the client left it.
async function cancelled(beginAndLeave) {
  const before = await nAborted();
  await beginAndLeave();
  for (let i = 0; i < 100; i++) {
    if ((await nAborted()) > before) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

async function refused(call, status) {
  try {
    await call();
  } catch (error) {
    return [status(error), error.message];
  }
  return [200, ""];
}

async function all(pieces, textOf) {
  const texts = [];
  for await (const piece of pieces) texts.push(textOf(piece) ?? "");
  return texts;
}

async function leave(pieces) {
  for await (const _ of pieces) break;
}

function openai() {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const chat = (text, more) => client.chat.completions.create({ model, messages: say(text), ...more });
  const message = async (text, more) => (await chat(text, more)).choices[0].message;
  return {
    stream: async () => all(await chat("hello", { stream: true }), (chunk) => chunk.choices[0].delta.content),
    tools: async () => {
      const [call] = (await message("call", { tools })).tool_calls;
      return [call.function.name, JSON.parse(call.function.arguments)];
    },
    schema: async () => JSON.parse((await message("size", { response_format: form })).content),
    reasoning: async () => {
      const said = await message("think");
      return [said.reasoning_content, said.content];
    },
    cancel: () => cancelled(async () => leave(await chat("long", { stream: true, max_tokens: LONG }))),
    error: () => refused(() => chat("x", { model: "none" }), (error) => error.status),
    logprobs: async () => {
      const [choice] = (await chat("hello", { logprobs: true })).choices;
      return choice.logprobs.content.map((entry) => entry.token);
    },
  };
}

function anthropic() {
  const client = new Anthropic({ baseURL: root, apiKey, maxRetries: 0 });
  const body = (text, more) => ({ model, max_tokens: 200, messages: say(text), ...more });
  const create = (text, more) => client.messages.create(body(text, more));
  return {
    stream: async () => {
      const texts = [];
      const stream = client.messages.stream(body("hello"));
      stream.on("text", (text) => texts.push(text));
      await stream.finalMessage();
      return texts;
    },
    tools: async () => {
      const tool = { name: "weather", description: "The weather.", input_schema: city };
      const { content } = await create("call", { tools: [tool] });
      const used = content.find((block) => block.type === "tool_use");
      return [used.name, used.input];
    },
    schema: async () => {
      const output_config = { format: { type: "json_schema", schema: size } };
      return JSON.parse((await create("size", { output_config })).content[0].text);
    },
    reasoning: async () => {
      const thinking = { type: "enabled", budget_tokens: 1024 };
      const [thought, text] = (await create("think", { thinking })).content;
      return [thought.thinking, text.text];
    },
    cancel: () =>
      cancelled(async () => {
        const stream = await create("long", { stream: true, max_tokens: LONG });
        await leave(stream);
        stream.controller.abort();
      }),
    error: () => refused(() => create("x", { model: "none" }), (error) => error.status),
  };
}

function ollama() {
  const client = new Ollama({ host: root, headers });
  const chat = (text, more) => client.chat({ model, messages: say(text), ...more });
  return {
    stream: async () => all(await chat("hello", { stream: true }), (part) => part.message.content),
    tools: async () => {
      const [call] = (await chat("call", { tools })).message.tool_calls;
      return [call.function.name, call.function.arguments];
    },
    schema: async () => JSON.parse((await chat("size", { format: size })).message.content),
    reasoning: async () => {
      const { message } = await chat("think", { think: true });
      return [message.thinking, message.content];
    },
    cancel: () =>
      cancelled(async () => {
        const stream = await chat("long", { stream: true, options: { num_predict: LONG } });
        await stream[Symbol.asyncIterator]().next();
        stream.abort();
      }),
    error: () => refused(() => chat("x", { model: "none" }), (error) => error.status_code),
    logprobs: async () => (await chat("hello", { logprobs: true })).logprobs.map((entry) => entry.token),
  };
}

function vercel() {
  const provider = createOpenAICompatible({ name: "soliton", baseURL, apiKey, supportsStructuredOutputs: true });
  const ask = (prompt, more) => ({ model: provider(model), prompt, maxRetries: 0, ...more });
  return {
    stream: async () => all(streamText(ask("hello")).textStream, (text) => text),
    tools: async () => {
      const own = { weather: tool({ description: "The weather.", inputSchema: jsonSchema(city) }) };
      const [call] = (await generateText(ask("call", { tools: own }))).toolCalls;
      return [call.toolName, call.input];
    },
    schema: async () => (await generateObject(ask("size", { schema: jsonSchema(size) }))).object,
    reasoning: async () => {
      const { reasoningText, text } = await generateText(ask("think"));
      return [reasoningText, text];
    },
    cancel: () =>
      cancelled(async () => {
        const stop = new AbortController();
        const request = ask("long", { maxOutputTokens: LONG, abortSignal: stop.signal, onError: () => {} });
        await streamText(request).textStream[Symbol.asyncIterator]().next();
        stop.abort();
      }),
    error: () => refused(() => generateText(ask("x", { model: provider("none") })), (error) => error.statusCode),
  };
}

function plain() {
  const post = (text, more, signal) =>
    fetch(`${baseURL}/chat/completions`, {
      method: "POST",
      headers,
      body: JSON.stringify({ model, messages: say(text), ...more }),
      signal,
    });
  const choice = async (text, more) => (await (await post(text, more)).json()).choices[0];
  return {
    stream: async () => {
      const lines = (await (await post("hello", { stream: true })).text()).split("\n\n");
      const data = lines.filter((line) => line && !line.includes("[DONE]")).map((line) => JSON.parse(line.slice(6)));
      return data.map((chunk) => chunk.choices[0].delta.content ?? "");
    },
    tools: async () => {
      const [call] = (await choice("call", { tools })).message.tool_calls;
      return [call.function.name, JSON.parse(call.function.arguments)];
    },
    schema: async () => JSON.parse((await choice("size", { response_format: form })).message.content),
    reasoning: async () => {
      const { message } = await choice("think");
      return [message.reasoning_content, message.content];
    },
    cancel: () =>
      cancelled(async () => {
        const stop = new AbortController();
        const answer = await post("long", { stream: true, max_tokens: LONG }, stop.signal);
        await answer.body.getReader().read();
        stop.abort();
      }),
    error: async () => {
      const answer = await post("x", { model: "none" });
      return [answer.status, (await answer.json()).error.message];
    },
    logprobs: async () => (await choice("hello", { logprobs: true })).logprobs.content.map((entry) => entry.token),
  };
}

const clients = {
  "openai, Node": openai,
  "anthropic, TypeScript": anthropic,
  "ollama, JavaScript": ollama,
  "Vercel AI SDK": vercel,
  "fetch": plain,
};
const seen = {};
for (const [name, features] of Object.entries(clients)) {
  seen[name] = {};
  for (const [feature, see] of Object.entries(features())) {
    try {
      seen[name][feature] = await see();
    } catch (error) {
      seen[name][feature] = `${error.name}: ${error.message}`;
    }
  }
}
console.log(JSON.stringify(seen));
