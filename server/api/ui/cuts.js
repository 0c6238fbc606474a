// What the samplers removed. Owns what a trace says about one alternative; pure arithmetic.

// These keep the most likely tokens, so a rank says whether one was kept.
const BY_RANK = new Set(["top_k", "top_p", "min_p", "top_a", "tfs", "top_n_sigma"]);

// [{stage, removed, left, first}]: the stages that removed something; `first`: the model's first
// choice was among it.
export function removals(trace, nVocab) {
  let left = nVocab;
  return (trace ?? []).filter((step) => step.n_removed > 0).map((step) => {
    left -= step.n_removed;
    return { stage: step.stage, removed: step.n_removed, left, first: step.removed_argmax };
  });
}

// Which stage removed the token of that rank, if the trace proves it; null: it does not.
export function cutBy(trace, rank, nVocab) {
  const steps = removals(trace, nVocab);
  if (steps.length === 1) return steps[0].stage;
  if (!steps.every(({ stage }) => BY_RANK.has(stage))) return null;
  return steps.find(({ left }) => rank >= left)?.stage ?? null;
}
