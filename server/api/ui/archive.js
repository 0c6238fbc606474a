// A run as a file. Owns what an exported file holds, and what is accepted back; pure.

const FORMAT = "soliton-run";

export function toFile(mode, request, run) {
  const { id, records, text, prompt, seed, cache, finish, stop, timings, speculation, branch } = run;
  return JSON.stringify({
    format: FORMAT, version: 1, mode, request,
    run: { id, records, text, prompt, seed, cache, finish, stop, timings, speculation, branch },
  }, null, 1);
}

// {mode, request, run}. Throws an Error that says what is wrong with the file.
export function fromFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("the file is not JSON; choose one that this page has exported");
  }
  if (file?.format !== FORMAT) {
    throw new Error("the file is not a run; choose one that this page has exported");
  }
  if (file.version !== 1) {
    throw new Error(`the file has version ${file.version}; this page reads version 1`);
  }
  const records = file.run?.records;
  if (!Array.isArray(records) || !records.every((each) => typeof each?.text === "string")) {
    throw new Error("the file has no token records");
  }
  return { mode: file.mode === "chat" ? "chat" : "prompt", request: file.request ?? {}, run: file.run };
}
