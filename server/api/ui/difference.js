// Two completions side by side. Owns where they part; pure arithmetic.

// How many of the first tokens are the same.
export function sameLength(one, other) {
  const n = Math.min(one.length, other.length);
  for (let i = 0; i < n; i += 1) if (one[i].id !== other[i].id) return i;
  return n;
}

// The place of the first difference; null while there is none. If both have ended, one that is
// longer differs where the other ends.
export function firstDifference(one, other, { ended = false } = {}) {
  const same = sameLength(one, other);
  const isInside = same < one.length && same < other.length;
  return isInside || (ended && one.length !== other.length) ? same : null;
}
