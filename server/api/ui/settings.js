// The settings of a request. Owns the list of sliders, and which fields a body gets; pure.

export const SAMPLERS = [
  { name: "temperature", min: 0, max: 2, step: 0.05, off: 1, hint: "0 always takes the likeliest token" },
  { name: "top_k", min: 0, max: 200, step: 1, off: 0, hint: "keep so many likeliest tokens; 0 is off" },
  { name: "top_p", min: 0, max: 1, step: 0.01, off: 1, hint: "keep the likeliest tokens up to this mass; 1 is off" },
  { name: "min_p", min: 0, max: 1, step: 0.01, off: 0,
    hint: "keep tokens above this share of the likeliest; 0 is off" },
  { name: "repetition_penalty", min: 1, max: 2, step: 0.01, off: 1,
    hint: "above 1: tokens that occurred become less likely" },
];

export const MORE_SAMPLERS = [
  { name: "typical_p", min: 0, max: 1, step: 0.01, off: 1, hint: "keep tokens of typical surprise; 1 is off" },
  { name: "tfs", min: 0, max: 1, step: 0.01, off: 1, hint: "cut the flat tail; 1 is off" },
  { name: "top_a", min: 0, max: 1, step: 0.01, off: 0, hint: "like min_p, by the square of the likeliest; 0 is off" },
  { name: "top_n_sigma", min: 0, max: 5, step: 0.1, off: 0, hint: "keep logits near the highest; 0 is off" },
  { name: "xtc_probability", min: 0, max: 1, step: 0.01, off: 0, hint: "how often the likeliest tokens are left out" },
  { name: "xtc_threshold", min: 0, max: 0.5, step: 0.01, off: 0.1, hint: "XTC: which tokens count as likely" },
  { name: "dry_multiplier", min: 0, max: 5, step: 0.05, off: 0, hint: "against repeated passages; 0 is off" },
  { name: "smoothing_factor", min: 0, max: 5, step: 0.05, off: 0, hint: "quadratic sampling; 0 is off" },
  { name: "frequency_penalty", min: -2, max: 2, step: 0.05, off: 0, hint: "per occurrence of a token" },
  { name: "presence_penalty", min: -2, max: 2, step: 0.05, off: 0, hint: "once a token has occurred" },
];

export const ALL_SAMPLERS = [...SAMPLERS, ...MORE_SAMPLERS];

// The order in which they run unless a request says another one. Penalties and DRY always run first.
export const SAMPLER_ORDER = [
  "smoothing", "temperature", "top_n_sigma", "top_k", "top_p", "top_a", "min_p", "tfs", "typical", "xtc",
];

// Short, because people read it and write it down.
export const newSeed = () => crypto.getRandomValues(new Uint16Array(1))[0];

// `params`: the model's own settings, as /props reports them.
export function defaultSettings(params = {}) {
  const values = ALL_SAMPLERS.map(({ name, off }) => [name, params[name] ?? off]);
  return {
    ...Object.fromEntries(values), max_tokens: 200, seed: null, stop: [], speculate: true,
    sampler_order: null, structured_outputs: null,
  };
}

// The fields of a body: what differs from the server's own, and the length.
export function settingFields(settings, defaults) {
  const names = ALL_SAMPLERS.map(({ name }) => name);
  const changed = names.filter((name) => settings[name] !== defaults[name]);
  return {
    max_tokens: settings.max_tokens,
    ...Object.fromEntries(changed.map((name) => [name, settings[name]])),
    ...(settings.seed === null ? {} : { seed: settings.seed }),
    ...(settings.stop.length ? { stop: settings.stop } : {}),
    ...(settings.speculate ? {} : { speculate: false }),
    ...(settings.sampler_order ? { sampler_order: settings.sampler_order } : {}),
    ...(settings.structured_outputs ? { structured_outputs: constraintOf(settings) } : {}),
  };
}

// A schema as it is written, or what it says if it is JSON, which reads better as code.
function constraintOf({ structured_outputs: constraint }) {
  if (!constraint?.json) return constraint;
  try {
    return { json: JSON.parse(constraint.json) };
  } catch {
    return constraint;
  }
}

// For a branch: every setting, because the stream that it leaves may have had others.
export function allFields(settings) {
  const samplers = SAMPLERS.map(({ name }) => [name, settings[name]]);
  const more = MORE_SAMPLERS.filter(({ name, off }) => settings[name] !== off)
    .map(({ name }) => [name, settings[name]]);
  return {
    ...Object.fromEntries([...samplers, ...more]),
    stop: settings.stop,
    sampler_order: settings.sampler_order,
    structured_outputs: constraintOf(settings),
    ...(settings.seed === null ? {} : { seed: settings.seed }),
    ...(settings.speculate ? {} : { speculate: false }),
  };
}

// Settings from the fields of a body, such as that of a link.
export function settingsOf(fields, defaults) {
  const settings = { ...defaults, stop: [] };
  for (const name of [...ALL_SAMPLERS.map((each) => each.name), "max_tokens", "seed"]) {
    if (Number.isFinite(fields[name])) settings[name] = fields[name];
  }
  if (Array.isArray(fields.stop)) settings.stop = fields.stop.map(String);
  if (fields.speculate === false) settings.speculate = false;
  if (Array.isArray(fields.sampler_order)) settings.sampler_order = fields.sampler_order.map(String);
  const [constraint] = Object.entries(fields.structured_outputs ?? {});
  if (constraint) {
    const [kind, what] = constraint;
    settings.structured_outputs = { [kind]: typeof what === "string" ? what : JSON.stringify(what, null, 1) };
  }
  return settings;
}

// "temperature 1.2, top_k 40": in what two settings differ, as the first has it.
export function differing(settings, other) {
  const names = [...ALL_SAMPLERS.map(({ name }) => name), "speculate", "sampler_order", "structured_outputs"];
  const differs = (name) => JSON.stringify(settings[name]) !== JSON.stringify(other[name]);
  return names.filter(differs).map((name) => worded(name, settings[name])).join(", ");
}

function worded(name, value) {
  if (name === "speculate") return `drafts ${value ? "on" : "off"}`;
  if (name === "sampler_order") return value ? value.join(" → ") : "the usual order";
  if (name === "structured_outputs") return value ? `a constraint (${Object.keys(value)[0]})` : "no constraint";
  return `${name} ${value}`;
}
