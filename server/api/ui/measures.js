// What a token is coloured by. Owns the five measures with their levels and words; pure arithmetic.

const BITS = Math.LN2;
export const LEVELS = 6;

// Steps between levels: a value below steps[k] has level k, one beyond all of them the last.
export const MEASURES = {
  surprisal: {
    label: "Surprisal", unit: "bits", steps: [0.5, 1, 2, 4, 8],
    hint: "how unlikely the model found the token: 1 bit is 50 %, 10 bits are 0.1 %",
    value: (record) => (Number.isFinite(record.logprob) ? -record.logprob / BITS : null),
  },
  entropy: {
    label: "Entropy", unit: "bits", steps: [0.5, 1, 2, 4, 6],
    hint: "how undecided the model was in this place: 1 bit is a coin toss",
    value: (record) => (Number.isFinite(record.entropy) ? record.entropy / BITS : null),
  },
  rank: {
    label: "Rank", unit: "", steps: [1, 2, 4, 10, 50],
    hint: "how many tokens the model found likelier",
    value: (record) => record.rank ?? null,
  },
  draft: {
    label: "Guessed by", unit: "", steps: [],
    hint: "who proposed the token before the model computed it",
    value: (record) => originOf(record),
  },
  time: {
    label: "Time", unit: "ms", steps: [0.5, 2, 10, 30, 100],
    hint: "milliseconds since the token before; tokens of one pass arrive together",
    value: (record, previous) => (
      Number.isFinite(record.timeMs) && Number.isFinite(previous?.timeMs)
        ? Math.max(0, record.timeMs - previous.timeMs)
        : null
    ),
  },
};

export const ORIGINS = {
  model: "the model",
  ngram: "n-grams",
  pool: "recent answers",
  mtp: "MTP block",
  eagle: "EAGLE head",
  draft_model: "draft model",
  prediction: "prediction",
  constraint: "constraint",
  you: "you",
};

export function levelOf(measure, value) {
  if (value === null || value === undefined) return 0;
  const { steps } = MEASURES[measure];
  const level = steps.findIndex((step) => value < step);
  return level < 0 ? steps.length : level;
}

// What a reader put there, by a choice or by a text.
const BY_READER = new Set(["forced", "injected"]);

export const originOf = (record) => {
  const origin = record.draft?.origin ?? null;
  return BY_READER.has(origin) ? "you" : origin;
};

// The class of a token: "l3" (a level), or "o-ngram" (an origin).
export function tokenClass(measure, record, previous) {
  const value = MEASURES[measure].value(record, previous);
  return measure === "draft" ? `o-${value ?? "model"}` : `l${levelOf(measure, value)}`;
}

// [{class, text}] from the least to the most.
export function legend(measure) {
  const { steps } = MEASURES[measure];
  if (measure === "draft") {
    return Object.entries(ORIGINS).map(([name, text]) => ({ class: `o-${name}`, text }));
  }
  return [...steps, null].map((step, level) => ({
    class: `l${level}`,
    text: step === null ? lastText(measure) : rangeText(measure, level),
  }));
}

// Readers count ranks from 1.
function lastText(measure) {
  const last = MEASURES[measure].steps.at(-1);
  return measure === "rank" ? `#${last + 1}+` : `${last}+`;
}

function rangeText(measure, level) {
  const { steps } = MEASURES[measure];
  const low = level ? steps[level - 1] : 0;
  if (measure !== "rank") return `${low}–${steps[level]}`;
  return steps[level] === low + 1 ? `#${low + 1}` : `#${low + 1}–${steps[level]}`;
}

// A height between 0 and 1 for the curve.
export function heightOf(measure, value) {
  if (value === null || value === undefined) return 0;
  if (measure === "draft") return value === "model" ? 0.25 : 1;
  const top = MEASURES[measure].steps.at(-1) * 1.25;
  return Math.min(1, Math.log1p(value) / Math.log1p(top));
}

export function percent(p) {
  if (p === null || p === undefined) return "–";
  if (p === 0) return "0";
  const value = 100 * p;
  if (value < 0.01) return "< 0.01";
  return value >= 99.95 ? "100" : value.toFixed(value < 1 ? 2 : 1);
}

// A token as text whose white space can be seen.
export function visible(text) {
  return text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥");
}
