/** The requests to the server, and the key that it may ask for. */

const KEY = "bert-jax API key";

/** What the server refuses, in one line for people. */
export class Refusal extends Error {
  constructor(line, status = 0) {
    super(line.replace(/\s*\n\s*/g, " "));
    this.needsKey = status === 401;
  }
}

export function keepKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export async function getModels() {
  return (await request("/models")).answer.models;
}

export function modelPath(model, route) {
  return `/models/${encodeURIComponent(model.name)}/${route}`;
}

/** Return the answer to a JSON body, and the latency in milliseconds: what the server reports, what the browser saw. */
export function post(path, body) {
  return request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function request(path, { headers = {}, ...options } = {}) {
  const authorization = hasKey() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};
  const start = performance.now();
  let response, text;
  try {
    response = await fetch(path, { ...options, headers: { ...headers, ...authorization } });
    text = await response.text();
  } catch {
    throw new Refusal("The server does not answer. Is it still running?");
  }
  const browser = performance.now() - start;
  const answer = parse(text);
  if (!response.ok)
    throw new Refusal(answer?.error ?? `The server answers with status ${response.status}.`, response.status);
  if (answer === undefined) throw new Refusal("The server's answer is not JSON.");
  const warnings = answer.warnings ?? readTruncation(response.headers);
  return { answer, warnings, latency: readLatency(response.headers, browser) };
}

/** Return what a header says where the answer itself has no place for warnings. */
function readTruncation(headers) {
  const texts = Number(headers.get("x-truncated-texts") ?? 0);
  if (!texts) return [];
  return [texts === 1 ? "1 text was too long, and its end was left out." : `${texts} texts were too long, and their ends were left out.`];
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function readLatency(headers, browser) {
  const number = (name) => (headers.has(name) ? Number(headers.get(name)) : null);
  return {
    total: number("x-total-time"),
    queue: number("x-queue-time"),
    tokenizing: number("x-tokenization-time"),
    computing: number("x-inference-time"),
    tokens: number("x-compute-tokens"),
    browser,
  };
}
