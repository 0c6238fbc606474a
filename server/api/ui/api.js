// The server's API from this page. Owns addresses, the key, and how an error reads; knows no route.

// The page is at …/ui, so that this also holds behind a proxy with a path prefix.
const BASE = new URL(".", document.baseURI).href;
const KEY = "soliton-key";

export const baseUrl = () => BASE.replace(/\/$/, "");
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export class ApiError extends Error {
  constructor(status, { message = `the server answered ${status}`, param = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

let askForKey = async () => null;
let asking = null;

// `ask(isWrong)` returns a key, or null if the reader gives up.
export function onMissingKey(ask) {
  askForKey = ask;
}

// The response of a request that succeeded. Throws ApiError, or TypeError without a connection.
export async function request(path, { body, method, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await fetch(BASE + path, {
      method: method ?? (body ? "POST" : "GET"),
      headers: {
        ...(body ? { "content-type": "application/json" } : {}),
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      },
      body: body ? JSON.stringify(body) : undefined,
      cache: "no-store",
      signal,
    });
    if (response.ok) return response;
    const isStale = response.status === 401 && key !== sessionStorage.getItem(KEY);
    if (response.status !== 401 || (!isStale && !await newKey(key))) {
      const answer = await response.json().catch(() => ({}));
      throw new ApiError(response.status, answer.error);
    }
  }
}

export const getJson = async (path, options) => (await request(path, options)).json();
export const getText = async (path) => (await request(path)).text();
export const postJson = async (path, body, options) => (
  (await request(path, { ...options, body })).json()
);

// Several requests may be refused at once; the reader is asked once.
async function newKey(wrong) {
  asking ??= askForKey(wrong !== null).finally(() => { asking = null; });
  const key = await asking;
  if (key !== null) sessionStorage.setItem(KEY, key);
  return key !== null;
}
