// A request in the fragment of a link. Owns its encoding; the server never sees it.

const MARK = "#r=";

export function toFragment(request) {
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return MARK + text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

// The request; null: the fragment has none, or is damaged.
export function fromFragment(fragment) {
  if (!fragment.startsWith(MARK)) return null;
  try {
    const text = atob(fragment.slice(MARK.length).replace(/-/g, "+").replace(/_/g, "/"));
    const request = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    return request && typeof request === "object" && !Array.isArray(request) ? request : null;
  } catch {
    return null;
  }
}
