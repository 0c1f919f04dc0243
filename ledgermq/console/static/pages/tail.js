/** The live tail of a topic: what comes, as it comes; it stops by itself. */
import { request } from "../js/api.js";
import { problem } from "../js/change.js";
import { h } from "../js/dom.js";
import { redraw } from "../js/live.js";
import { api, empty, link, pageHead, partial, site } from "../js/parts.js";
import { table } from "../js/table.js";
import { bytes, t } from "../js/words.js";
import { messageAddress, messageColumns } from "./messages.js";

const EVERY_MS = 1000;
/** Then it has to be started anew: a tab that was forgotten costs nobody anything. */
const MINUTES = 5;
const BYTES_MAX = 16 * 1024 * 1024;
const ROWS_MAX = 500;

/** The tail that is shown: what it found, and why it ended. */
let tail = { id: "", on: false, rows: [], cursor: "", passed: 0, bytes: 0, until: 0, end: "", data: null, error: null };
let conditions = { tag: "", text: "" };

const idOf = (topic) => `${site.cluster} ${topic}`;

function startTail(topic) {
  const mine = { id: idOf(topic), on: true, rows: [], cursor: "", passed: 0, bytes: 0, until: Date.now() + MINUTES * 60_000, end: "", data: null, error: null };
  tail = mine;
  readTail(mine, topic);
  redraw();
}

function stopTail(mine, why) {
  Object.assign(mine, { on: false, end: why });
  redraw();
}

/** Why it ends now; empty while it goes on. */
function over(mine) {
  if (document.visibilityState !== "visible") return "hidden";
  if (Date.now() > mine.until) return "time";
  return mine.bytes >= BYTES_MAX ? "bytes" : "";
}

async function readTail(mine, topic) {
  if (!mine.on || mine !== tail) return;
  const why = over(mine);
  if (why) {
    stopTail(mine, why);
    return;
  }
  try {
    const data = await request("POST", api("topics", topic, "tail"), { body: { cursor: mine.cursor, limit: 50, ...conditions } });
    mine.rows = [...data.rows, ...mine.rows].slice(0, ROWS_MAX);
    mine.passed += data.passed;
    mine.bytes += data.read_bytes;
    Object.assign(mine, { cursor: data.cursor, data, error: null });
  } catch (error) {
    mine.error = error;
    // Refused for good; all else may be better in a second.
    if ([400, 401, 403, 404].includes(error.status)) stopTail(mine, "failed");
  }
  if (mine.on) setTimeout(readTail, EVERY_MS, mine, topic);
  redraw();
}

export function tailPage([topic = ""]) {
  const mine = tail.id === idOf(topic) ? tail : { rows: [] };
  const field = (name, label) => h("input", { type: "text", value: conditions[name], placeholder: label, "aria-label": label, disabled: Boolean(mine.on), oninput: (e) => (conditions = { ...conditions, [name]: e.target.value }) });
  return [
    pageHead({
      title: t("tail.of", { name: topic }), crumb: [link(["topics"], t("page.topics")), " / ", link(["topics", topic], topic)],
      lead: h("span", { role: "status", gone: () => mine.on && stopTail(mine, "left") }, mine.on ? t("tail.on") : mine.end ? t(`tail.end.${mine.end}`) : ""),
      actions: mine.on ? h("button", { key: "stop", onclick: () => stopTail(mine, "stop") }, t("stop")) : h("button", { key: "start", class: "primary", onclick: () => startTail(topic) }, t("tail.start")),
    }),
    mine.error && problem(mine.error), partial(mine.data?.answers),
    mine.passed > 0 && h("div", { class: "notice warn", key: "passed" }, t("tail.passed", { n: mine.passed })),
    table({
      id: "tail", main: true, label: t("tail"), rows: mine.rows, link: messageAddress, rowKey: (r) => `${r.broker} ${r.queue} ${r.offset}`, columns: messageColumns(),
      filters: [field("tag", t("field.tags")), field("text", t("search.text"))], tools: mine.bytes > 0 && h("span", { class: "tally" }, bytes(mine.bytes)),
      empty: empty(t(mine.on ? "tail.none" : "tail.off"), t("tail.text", { minutes: MINUTES, size: bytes(BYTES_MAX), rows: ROWS_MAX }), "messages"),
    }),
  ];
}
