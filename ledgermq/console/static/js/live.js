/** What the page knows of the server: answers by their address, kept fresh while they are shown.
 *
 * A view calls `use` for what it shows. What no view asks for any more is forgotten and its request
 * cut off, so nothing is asked that is not shown. Hidden tabs ask nothing at all.
 */
import { ApiError, queryOf, request } from "./api.js";

/** @typedef {{key: string, data: any, error: ApiError|null, at: number, every: number, due: number,
 *   cut: AbortController|null, used: number}} Answer */

/** @type {Map<string, Answer>} */
const answers = new Map();
let draw = () => {};
let drawing = false;
let round = 0;
let timer = 0;

/** Sets what draws the page; `redraw` calls it once before the next frame. */
export function onDraw(callback) {
  draw = callback;
}

export function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    round += 1;
    wanted = new Map();
    draw();
    forget();
    listen();
  });
}

/**
 * What the server answers to a GET; asked again each `every` milliseconds while it is shown.
 * @returns {Answer} with `data` null until the first answer; an error keeps the data before it
 */
export function use(path, params = {}, { every = 0, part = undefined } = {}) {
  const query = queryOf(params);
  const key = query ? `${path}?${query}` : path;
  let answer = answers.get(key);
  if (!answer) {
    answer = { key, data: null, error: null, at: 0, every, due: 0, cut: null, used: round };
    answers.set(key, answer);
    ask(answer);
  }
  answer.used = round;
  answer.every = every;
  if (part) wanted.set(part, { key, query });
  return answer;
}

/** Asks again now what begins so, for instance after a change. */
export function refresh(prefix = "") {
  for (const answer of answers.values()) if (answer.key.startsWith(prefix)) ask(answer);
}

/** Takes what the event stream said for the answer of one address. */
function put(key, data) {
  const answer = answers.get(key);
  if (answer) {
    answer.cut?.abort();
    Object.assign(answer, { data, error: null, at: Date.now(), due: Date.now() + answer.every, cut: null });
    redraw();
  }
}

/** Parts of the page that the event stream can keep fresh, as the last round of drawing asked. */
let wanted = new Map();
/** The one stream of this tab: what it was opened for, and how it is. */
let stream = null;
let opening = 0;
let onEvent = () => {};
let streamPath = "";

/** @param {string} path where the stream is; @param {(name: string, data: any) => void} callback */
export function follow(path, callback) {
  streamPath = path;
  onEvent = callback;
}

/** live, connecting, or off while the page has nothing to follow */
export const streamState = () => (!stream ? "off" : stream.source.readyState === 1 ? "live" : "connecting");

function streamAddress() {
  const words = new URLSearchParams({ parts: [...wanted.keys()].join(",") });
  for (const [part, { query, key }] of wanted) {
    if (part === "topics" || part === "consumer_groups") words.set(part, query);
    if (part === "consumer_group") words.set(part, decodeURIComponent(key.split("/").at(-1)));
  }
  return `api/v1/${streamPath}?${words}`;
}

/** Opens the stream for what is shown now; soon, so that scrolling opens one and not fifty. */
function listen() {
  const target = wanted.size && streamPath && document.visibilityState === "visible" ? streamAddress() : "";
  if ((stream?.target || "") === target) {
    clearTimeout(opening);
    opening = 0;
    if (stream) stream.parts = wanted;
  } else if (opening === 0 || stream) {
    if (stream && !target) closeStream();
    clearTimeout(opening);
    opening = target ? setTimeout(() => openStream(target, wanted), 400) : 0;
  }
}

function closeStream() {
  stream?.source.close();
  if (stream) redraw();
  stream = null;
}

function openStream(target, parts) {
  opening = 0;
  closeStream();
  const mine = { source: new EventSource(target), target, parts };
  stream = mine;
  mine.source.onopen = redraw;
  mine.source.onerror = () => {
    // Refused for good: the browser does not come back by itself, the page asks now and then.
    if (mine.source.readyState === 2) setTimeout(() => stream === mine && (closeStream(), redraw()), 10_000);
    redraw();
  };
  for (const name of [...parts.keys(), "session"]) {
    mine.source.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      const part = mine.parts.get(name);
      if (part && name !== "history") put(part.key, data);
      onEvent(name, data);
    });
  }
}

async function ask(answer) {
  answer.cut?.abort();
  const cut = new AbortController();
  answer.cut = cut;
  try {
    answer.data = await request("GET", answer.key, { signal: cut.signal });
    answer.error = null;
    answer.at = Date.now();
  } catch (error) {
    if (cut.signal.aborted) return;
    answer.error = error instanceof ApiError ? error : new ApiError(0, "page", String(error));
  }
  answer.cut = null;
  answer.due = Date.now() + answer.every;
  redraw();
}

function forget() {
  for (const [key, answer] of answers) {
    if (answer.used < round) {
      answer.cut?.abort();
      answers.delete(key);
    }
  }
}

/** The stream brings it, and has done so lately. */
const isFollowed = (answer) =>
  streamState() === "live" && Date.now() - answer.at < 15_000 && [...stream.parts.values()].some((part) => part.key === answer.key);

function beat() {
  const now = Date.now();
  for (const answer of answers.values()) {
    if (answer.every && !answer.cut && now >= answer.due && !isFollowed(answer)) ask(answer);
  }
}

/** Begins to ask again what is due, while the tab is seen. */
export function start() {
  const see = () => {
    clearInterval(timer);
    if (document.visibilityState === "visible") {
      timer = setInterval(beat, 500);
      beat();
      redraw();
    } else {
      clearTimeout(opening);
      opening = 0;
      closeStream();
    }
  };
  document.addEventListener("visibilitychange", see);
  see();
}

export const clear = () => {
  for (const answer of answers.values()) answer.cut?.abort();
  answers.clear();
};
