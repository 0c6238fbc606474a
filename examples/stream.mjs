// Reading a stream without a package: one event per line that begins with "data: ".

const answer = await fetch("http://127.0.0.1:8000/v1/completions", {
  method: "POST",
  headers: { "content-type": "application/json", authorization: "Bearer none" },
  body: JSON.stringify({ prompt: "Once upon a time", max_tokens: 40, seed: 7, stream: true }),
});
if (!answer.ok) throw new Error(await answer.text());

const decoder = new TextDecoder();
let text = "";
let unread = "";
for await (const bytes of answer.body) {
  unread += decoder.decode(bytes, { stream: true });
  const lines = unread.split("\n");
  unread = lines.pop();
  for (const line of lines) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    const event = JSON.parse(line.slice("data: ".length));
    if (event.error) throw new Error(event.error.message);
    for (const choice of event.choices) text += choice.text;
  }
}
console.log(text);
