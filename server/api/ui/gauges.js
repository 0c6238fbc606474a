// The server's metrics as numbers over time. Owns the text format of Prometheus, and rates; pure.

// {name: sum over all labels}; buckets of histograms are left out.
export function parseMetrics(text) {
  const sums = {};
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:\{[^}]*\})? (\S+)/.exec(line);
    if (match && !match[1].endsWith("_bucket")) {
      sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
    }
  }
  return sums;
}

// What happened between two readings, `seconds` apart; null: nothing to say.
export function sample(before, now, seconds) {
  const grown = (name) => Math.max(0, (now[`soliton_${name}`] ?? 0) - (before[`soliton_${name}`] ?? 0));
  const share = (part, whole) => (whole > 0 ? part / whole : null);
  const drafted = grown("draft_tokens_total");
  const prompt = grown("prompt_tokens_total");
  return {
    queue: now.soliton_queue_length ?? 0,
    busy: now.soliton_engine_busy ?? 0,
    rate: grown("completion_tokens_total") / seconds,
    speed: share(grown("time_per_token_seconds_count"), grown("time_per_token_seconds_sum")),
    first: share(
      1000 * grown("time_to_first_token_seconds_sum"), grown("time_to_first_token_seconds_count"),
    ),
    drafts: share(grown("draft_tokens_accepted_total"), drafted),
    cached: share(grown("cached_prompt_tokens_total"), prompt),
  };
}

// {value of the label: value} of one metric.
export function labelled(text, name, label) {
  const rows = text.split("\n").filter((line) => line.startsWith(`${name}{`));
  const pairs = rows.map((line) => [new RegExp(`${label}="([^"]*)"`).exec(line)?.[1], Number(line.split(" ").at(-1))]);
  return Object.fromEntries(pairs.filter(([value, n]) => value !== undefined && n > 0));
}
