// Server-sent events. Owns how a stream of characters becomes the data of events; knows no fields.

// Returns a function that takes the next characters and returns the data of the events that they
// complete, in order. Comments, such as pings, are left out.
export function frameParser() {
  let rest = "";
  return (text) => {
    const parts = (rest + text).split("\n\n");
    rest = parts.pop();
    return parts.map(dataOf).filter((data) => data !== null);
  };
}

function dataOf(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}

// The data of the events of a response, in batches as they arrive.
export async function* readFrames(response) {
  const parse = frameParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const batch = parse(value);
    if (batch.length) yield batch;
  }
}
