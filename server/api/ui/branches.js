// The tree of branches. Owns how streams that share a beginning become segments; pure arithmetic.

// `streams`: [{id, parent: {id, at} | null, length}]. Returns the ids of `id`'s family, root first.
export function family(streams, id) {
  const known = new Map(streams.map((stream) => [stream.id, stream]));
  let root = known.get(id);
  while (root?.parent && known.has(root.parent.id)) root = known.get(root.parent.id);
  if (!root) return [];
  const ids = [root.id];
  for (let i = 0; i < ids.length; i += 1) {
    ids.push(...streams.filter(({ parent }) => parent?.id === ids[i]).map((child) => child.id));
  }
  return ids;
}

// A segment: {id, from, to, children}: tokens `from` to `to` of stream `id`, up to where the next
// branch leaves it; the first child goes on with the same stream, if it has more tokens.
export function segments(streams, rootId) {
  const known = new Map(streams.map((stream) => [stream.id, stream]));
  const build = (id, from, branches) => {
    const { length } = known.get(id);
    const later = branches.filter(({ parent }) => parent.at >= from);
    const at = Math.min(length, ...later.map(({ parent }) => parent.at));
    const leaving = later.filter(({ parent }) => Math.min(parent.at, length) === at);
    const rest = later.filter((each) => !leaving.includes(each));
    if (!leaving.length) return { id, from, to: length, children: [] };
    const own = at < length ? [build(id, at, rest)] : [];
    const children = leaving.map((branch) => whole(branch.id, at));
    // A branch at the very beginning leaves no text in front of it.
    return { id, from, to: at, children: [...own, ...children] };
  };
  const whole = (id, from) => build(id, from, streams.filter(({ parent }) => parent?.id === id));
  return whole(rootId, 0);
}

// The segments as rows from top to bottom: [{segment, depth, parent, index}].
export function rows(segment, depth = 0, parent = null, index = 0) {
  const own = { segment, depth, parent, index };
  return [own, ...segment.children.flatMap((child, k) => rows(child, depth + 1, segment, k))];
}
