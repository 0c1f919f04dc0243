/** Requests to the console's own API, the one that programs use too. */

export class ApiError extends Error {
  /** @param {number} status 0: no answer came at all */
  constructor(status, code, message, detail = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

let token = "";
let onSignedOut = () => {};

/** What each request that changes something has to show; known since the sign-in. */
export const setToken = (value) => {
  token = value || "";
};
export const whenSignedOut = (callback) => {
  onSignedOut = callback;
};

/** Values as a query; what is empty or absent is left out. */
export const queryOf = (params) =>
  String(new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value != null)));

/** Sends one request and gives its JSON. Throws ApiError, and AbortError when it was cut off. */
export async function request(method, path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    if (token) headers["X-CSRF-Token"] = token;
  }
  let reply;
  try {
    reply = await fetch(`api/v1/${path}`, {
      method, headers, signal, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "");
  }
  let data = null;
  try {
    data = await reply.json();
  } catch {
    if (reply.ok && reply.status !== 204) throw new ApiError(reply.status, "not-json", "");
  }
  if (reply.ok) return data;
  if (reply.status === 401) onSignedOut();
  const error = data?.error || {};
  throw new ApiError(reply.status, error.code || String(reply.status), error.message || reply.statusText, error);
}
