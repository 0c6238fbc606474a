// What a screen reader hears of a text that grows: whole sentences, not tokens.

import { setText } from "./dom.js";

const SENTENCE = /[.!?…\n]["'”’)]*\s*$/;
const LONGEST = 240;

export function speaker(element) {
  let spoken = { run: null, length: 0 };
  return (run) => {
    if (spoken.run !== run) spoken = { run, length: run.isLive ? 0 : run.data.text.length };
    const fresh = run.data.text.slice(spoken.length);
    if (!fresh || (run.isLive && !SENTENCE.test(fresh) && fresh.length < LONGEST)) return;
    spoken.length = run.data.text.length;
    setText(element, fresh);
  };
}
