/** Texts in the reader's language, from one dictionary for each, and numbers as it writes them. */

export const LANGUAGES = { en: "English", zh: "中文" };

let texts = {};
/** @type {"en" | "zh"} */
export let language = "en";

/** The language chosen before, or the browser's. */
export function preferredLanguage() {
  const kept = keep("language");
  if (kept in LANGUAGES) return kept;
  return (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
}

export async function loadLanguage(name) {
  const reply = await fetch(`text/${name}.json`);
  texts = await reply.json();
  language = name;
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
}

/** What the browser keeps of the reader's choices; storage may be shut off. */
export function keep(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`ledgermq.${name}`) || "";
    localStorage.setItem(`ledgermq.${name}`, value);
  } catch {
    // Then the choice lasts as long as the page.
  }
  return "";
}

/** A text by its key. `{name}` is replaced, `{n|message|messages}` chooses by number. */
export function t(key, values = {}) {
  const text = texts[key];
  if (text === undefined) return key;
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) => {
    const value = values[name];
    if (one !== undefined) return Number(value) === 1 ? one : many;
    return typeof value === "number" ? count(value) : String(value ?? "");
  });
}

export const has = (key) => key in texts;

const locale = () => (language === "zh" ? "zh-CN" : "en");
const formats = new Map();

function numberFormat(digits) {
  const key = `${language} ${digits}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat(locale(), { maximumFractionDigits: digits }));
  }
  return formats.get(key);
}

export const NOTHING = "–";

/** A whole number with its thousands apart. */
export const count = (n) => (n == null ? NOTHING : numberFormat(0).format(n));

const scaled = (n, step, units) => {
  let value = n;
  let i = 0;
  while (Math.abs(value) >= step * 0.9995 && i < units.length - 1) {
    value /= step;
    i += 1;
  }
  return [numberFormat(i === 0 || Math.abs(value) >= 100 ? 0 : 1).format(value), units[i]];
};

/** 1234567 -> "1.2 M" */
export const short = (n) => (n == null ? NOTHING : scaled(n, 1000, ["", "k", "M", "G", "T"]).join(" ").trim());

export const bytes = (n) => (n == null ? NOTHING : scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).join(" "));

/** A rate in events a second; small ones with more digits. */
export function rate(n) {
  if (n == null) return NOTHING;
  const text = n > 0 && n < 10 ? numberFormat(n < 0.1 ? 2 : 1).format(n) : short(n);
  return `${text}/s`;
}

export const byteRate = (n) => (n == null ? NOTHING : `${bytes(n)}/s`);

/** A span of time in its largest fitting unit, from milliseconds. */
export function span(ms) {
  if (ms == null) return NOTHING;
  if (ms < 1000) return `${numberFormat(ms < 10 ? 1 : 0).format(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${numberFormat(s < 10 ? 1 : 0).format(s)} s`;
  if (s < 3600) return `${count(Math.floor(s / 60))} ${t("unit.min")}`;
  if (s < 172_800) return `${count(Math.floor(s / 3600))} h`;
  return `${count(Math.floor(s / 86_400))} ${t("unit.d")}`;
}

export const percent = (share) => (share == null ? NOTHING : `${numberFormat(share < 0.1 ? 1 : 0).format(share * 100)} %`);

const two = (n) => String(n).padStart(2, "0");

/** A moment in local time: the day only when it is not today. */
export function moment(ms, { full = false } = {}) {
  if (!ms || ms < 0) return NOTHING;
  const date = new Date(ms);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const millis = `.${String(date.getMilliseconds()).padStart(3, "0")}`;
  if (full) return `${day} ${time}${millis}`;
  return date.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

/** How long ago a moment of the server's was, in words. */
export const ago = (ms, now = Date.now()) =>
  !ms || ms < 0 ? NOTHING : t("time.ago", { span: span(Math.max(0, now - ms)) });

/** Control characters and lone surrogates of foreign names are shown, never printed. */
export const visible = (text) =>
  String(text)
    .toWellFormed()
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) => {
      const code = c.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
    });
