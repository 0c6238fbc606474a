// The request as a command and as a program. Owns their texts; the key is never in them.

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

// `base`: the server's address without a slash at the end.
export function asCurl(base, path, body, hasKey) {
  const key = hasKey ? " \\\n  -H \"authorization: Bearer $SOLITON_API_KEY\"" : "";
  return `curl -N ${base}/${path}${key} \\\n  -H 'content-type: application/json' \\\n`
    + `  -d ${quoted(inLines(body))}`;
}

// With a space behind each comma of a list, where a line may break.
const spaced = (value) => (
  Array.isArray(value) ? `[${value.map((each) => JSON.stringify(each)).join(", ")}]` : JSON.stringify(value));

// JSON with a field a line.
function inLines(body) {
  const rows = Object.entries(body).map(([name, value]) => `    ${JSON.stringify(name)}: ${spaced(value)}`);
  return `{\n${rows.join(",\n")}\n  }`;
}

const OPENAI = new Set([
  "model", "prompt", "messages", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "store",
  "logprobs", "top_logprobs", "frequency_penalty", "presence_penalty", "metadata",
]);

export function asPython(base, path, body, hasKey) {
  const isChat = path.includes("chat");
  const known = Object.entries(body).filter(([name]) => OPENAI.has(name) && !(name === "store" && !isChat));
  const extra = Object.entries(body).filter(([name]) => !known.some(([other]) => other === name));
  const rows = known.map(([name, value]) => `    ${name}=${python(value)},`);
  if (extra.length) rows.push(`    extra_body=${python(Object.fromEntries(extra))},`);
  const piece = isChat ? "chunk.choices[0].delta.content or \"\"" : "chunk.choices[0].text";
  const key = hasKey ? "os.environ[\"SOLITON_API_KEY\"]" : "\"any\"";
  return [
    ...(hasKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${python(`${base}/v1`)}, api_key=${key})`,
    `stream = client.${isChat ? "chat.completions" : "completions"}.create(`,
    ...rows,
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    `        print(${piece}, end="", flush=True)`,
  ].join("\n");
}

export function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
