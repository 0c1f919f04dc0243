/** Messages: search, one message, what waits for its time, and traces. */
import { request } from "../js/api.js";
import { inputField, problem } from "../js/change.js";
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { redraw, use } from "../js/live.js";
import { age, api, doing, empty, facts, figure, groupLink, inside, link, mark, mayChange, menu, pageHead, partial, segments, sheet, shown, site, tabs, to, topicLink } from "../js/parts.js";
import { change, go } from "../js/router.js";
import { table } from "../js/table.js";
import { ago, bytes, count, has, moment, span, t, visible } from "../js/words.js";

// Message search: by id, key, place, time, tag, condition or text, within a budget and with a stop.

export const messageTabs = () => tabs(t("page.messages"), [[["messages"], t("search")], [["trace"], t("trace")], [["delayed"], t("delayed")]]);
export const messageAddress = (r) => to(["messages", r.topic, r.broker, String(r.queue), String(r.offset)]);

export const messageColumns = () => [
  { key: "id", title: t("message-id"), of: "message_id", cell: (r) => h("a", { class: "mono", href: messageAddress(r) }, visible(r.message_id)), width: 262 },
  { key: "stored", of: "stored_ms", as: moment, end: true, width: 148 },
  { key: "place", title: t("place"), value: (r) => `${r.broker} ${r.queue} ${r.offset}`, cell: (r) => `${visible(r.broker)} / ${r.queue} / ${count(r.offset)}`, width: 186 },
  { key: "keys", title: t("field.keys"), width: 110 },
  { key: "tags", title: t("field.tags"), width: 84 },
  { key: "bytes", title: t("size"), of: "body_bytes", as: bytes, end: true, width: 76 },
  { key: "preview", title: t("body"), cell: (r) => h("span", { class: "mono soft" }, visible(r.preview)), fixed: true },
];

/** What is asked: field of the form -> how it goes to the server. */
const TEXTS = ["topic", "offset_id", "key", "unique_key", "broker", "tag", "sql", "text"];
const NUMBERS = ["queue", "at_offset", "found_max", "scan_max", "seconds_max"];
const MOMENTS = ["begin", "end"];

/** The search under way, and what the form holds before it is sent. */
let state = { asked: "", cluster: "", path: "", data: null, rows: [], error: null, timer: 0 };
let entered = { asked: "", values: {} };

function bodyOf(query) {
  const body = {};
  for (const name of TEXTS) if (query[name]) body[name] = query[name];
  for (const name of NUMBERS) if (query[name]) body[name] = Number(query[name]);
  for (const name of MOMENTS) if (query[name]) body[`${name}_ms`] = new Date(query[name]).getTime();
  return body;
}

async function beginSearch(query, asked) {
  const former = state;
  clearTimeout(former.timer);
  const mine = { asked, cluster: site.cluster, path: "", data: null, rows: [], error: null, timer: 0, seen: 0 };
  state = mine;
  try {
    if (former.data?.state === "running") await request("DELETE", former.path).catch(() => null);
    mine.data = await request("POST", api("searches"), { body: bodyOf(query) });
    mine.path = api("searches", mine.data.id);
    mine.rows = mine.data.rows;
    readOn(mine);
  } catch (error) {
    mine.error = error;
  }
  redraw();
}

function readOn(mine) {
  if (mine !== state || mine.data.state !== "running") return;
  mine.timer = setTimeout(async () => {
    // Somebody who looks elsewhere waits for no answer; but a search that nobody asks for is given up.
    if (document.visibilityState === "visible" || Date.now() - mine.seen > 30_000) {
      mine.seen = Date.now();
      try {
        mine.data = await request("GET", `${mine.path}?after=${mine.rows.length}`);
        mine.rows = [...mine.rows, ...mine.data.rows];
        mine.error = null;
      } catch (error) {
        mine.error = error;
        if (error.status && error.status < 500) return redraw();
      }
    }
    redraw();
    readOn(mine);
  }, mine.seen ? 1000 : 400);
}

async function stopSearch() {
  const mine = state;
  clearTimeout(mine.timer);
  try {
    mine.data = await request("DELETE", mine.path);
  } catch (error) {
    mine.error = error;
  }
  redraw();
}

export function searchPage(_, query) {
  const fields = Object.fromEntries([...TEXTS, ...NUMBERS, ...MOMENTS].filter((name) => query[name]).map((name) => [name, query[name]]));
  const asked = JSON.stringify(fields);
  if (entered.asked !== asked) entered = { asked, values: { ...fields } };
  const wants = Object.keys(fields).some((name) => name !== "topic" && !name.endsWith("_max")) || query.run;
  if (wants && (state.asked !== asked || state.cluster !== site.cluster)) beginSearch(query, asked);
  if (!wants && state.asked && state.asked !== asked) state = { asked: "", cluster: "", id: "", data: null, rows: [], error: null, timer: 0 };
  return [pageHead({ title: t("page.messages") }), messageTabs(), searchForm(query), results(asked)];
}

function searchForm(query) {
  const set = (name) => (value) => {
    entered.values[name] = value;
  };
  const field = (name, more = {}) => inputField({ name, label: t(`search.${name}`), ...more }, entered.values[name] || "", set(name));
  const open = ["offset_id", "unique_key", "broker", "queue", "at_offset", "sql", ...NUMBERS].some((name) => query[name]);
  return h("form", {
    class: "sheet", "aria-label": t("search"), onsubmit: (event) => {
      event.preventDefault();
      state = { ...state, asked: "" };
      go(["messages"], { ...(query.cluster ? { cluster: query.cluster } : {}), ...entered.values, run: "1" });
      redraw();
    },
  }, h("div", { class: "form" }, field("topic", { wide: true }), field("key"), field("tag"), field("text"), field("begin", { type: "datetime-local" }), field("end", { type: "datetime-local" }),
    h("div", { class: "end" }, h("button", { class: "primary", type: "submit" }, t("search")), h("a", { class: "button quiet", href: to(["messages"]) }, t("reset")))),
  h("details", { class: "more", ...(open ? { open: true } : {}) }, h("summary", {}, t("search.more")), h("div", { class: "form" }, field("unique_key", { wide: true }), field("offset_id", { wide: true }), field("sql", { wide: true, placeholder: "a > 5 AND b = 'x'" }), field("broker"), field("queue", { type: "number", min: 0, step: 1 }), field("at_offset", { type: "number", min: 0, step: 1 }),
    field("found_max", { type: "number", min: 1, max: 1000, step: 1, placeholder: "100" }), field("scan_max", { type: "number", min: 1, step: 1, placeholder: "1000000" }), field("seconds_max", { type: "number", min: 1, max: 3600, placeholder: "600" }))));
}

function results(asked) {
  if (state.asked !== asked) return h("section", { class: "sheet fill" }, empty(t("search.first"), t("search.first.text"), "search"));
  const { data, rows, error } = state;
  return [
    error && problem(error),
    data && [
      h("div", { class: "budget", role: "status" },
        data.state === "running" ? h("span", { class: "waiting" }, t("search.scanned", { scanned: data.scanned, total: data.total, span: span(data.took_ms) }))
          : [mark({ done: "ok", failed: "bad" }[data.state] || "warn", t(`search.state.${data.state}`), visible(data.reason)), " ", t("search.scanned", { scanned: data.scanned, total: data.total, span: span(data.took_ms) })],
        data.state === "running" && h("button", { class: "small", onclick: stopSearch }, t("stop")), data.reason && h("span", { class: "faint" }, visible(data.reason))),
      data.state === "running" && h("div", { class: "progress" }, h("i", { style: { width: `${data.total ? (100 * data.scanned) / data.total : data.state === "running" ? 5 : 100}%` } })),
      partial(data.answers),
      table({
        id: "found", main: true, label: t("search.found"), rows, columns: [...messageColumns().slice(0, 1), ...(rows.some((r) => r.topic !== rows[0].topic) ? [{ key: "topic", as: topicLink, width: 160 }] : []), ...messageColumns().slice(1)],
        rowKey: (r) => `${r.topic} ${r.broker} ${r.queue} ${r.offset}`, link: messageAddress, empty: data.state === "running" ? h("div", { class: "empty" }, t("search.none.yet")) : empty(t("search.none"), t("search.none.text"), "search"),
      })],
  ];
}

// One message: body as text, JSON or hexadecimal, its properties, where it lies, what became of it.

const AT_GROUP = { consumed: "ok", waiting: "warn", filtered: "", offline: "", unknown: "" };

/** Rows of 16 bytes: place, digits, what can be printed. */
export function hexRows(digits) {
  const rows = [];
  for (let at = 0; at < digits.length; at += 32) {
    const pairs = digits.slice(at, at + 32).match(/../g) || [];
    const text = pairs.map((pair) => parseInt(pair, 16)).map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    rows.push(`${(at / 2).toString(16).padStart(8, "0")}  ${pairs.slice(0, 8).join(" ").padEnd(23)}  ${pairs.slice(8).join(" ").padEnd(23)}  ${text}`);
  }
  return rows.join("\n");
}

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
/** Longer ones are shown without colours: each would be an element. */
const COLOURED_MAX = 40_000;

/** JSON with its parts in colours, as elements. */
export function coloured(text) {
  if (text.length > COLOURED_MAX) return text;
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    const [whole, string, colon, number] = match;
    parts.push(h("span", { class: string ? (colon ? "k" : "s") : number ? "n" : "c" }, string || whole), colon || "");
    at = match.index + whole.length;
  }
  return [...parts, text.slice(at)];
}

/** Line breaks and tabs stay, what else controls is shown. */
const readable = (text) => text.split("\n").map((line) => line.split("\t").map(visible).join("\t")).join("\n");

export function messagePage([topic, broker, queue, offset], query) {
  const answer = use(api("topics", topic, "messages", broker, queue, offset));
  return [
    pageHead({
      title: answer.data ? h("span", { class: "mono" }, visible(answer.data.row.message_id)) : t("message"),
      crumb: [link(["messages"], t("page.messages")), " / ", topicLink(topic)],
      lead: answer.data && answer.data.row.tags && h("span", { class: "tag" }, visible(answer.data.row.tags)), actions: answer.data && messageActions(answer.data, [topic, broker, queue, offset]),
    }),
    shown(answer, (data) => messageSheets(data, query, [topic, broker, queue, offset])),
  ];
}

function messageSheets(data, query, place) {
  const { row } = data;
  return [
    h("div", { class: "columns" },
      h("div", { class: "two-thirds stack" }, bodySheet(data, query, place), properties(data)),
      h("div", { class: "third stack" },
        sheet(t("message.facts"), {}, h("div", { class: "body" }, facts([
          [t("topic"), topicLink(row.topic)], [t("place"), `${visible(row.broker)} / ${row.queue} / ${count(row.offset)}`], [t("field.keys"), visible(row.keys || "–")],
          [t("born"), moment(row.born_ms, { full: true })], [t("stored"), moment(row.stored_ms, { full: true })], data.deliver_ms && [t("deliver"), moment(data.deliver_ms, { full: true })],
          data.delay_level > 0 && [t("field.delay_level"), count(data.delay_level)], [t("born-host"), visible(data.born_host)], [t("store-host"), visible(data.store_host)],
          [t("record"), `${bytes(data.record_bytes)} · ${count(data.physical_offset)}`, t("record.hint")], [t("flags"), `${data.flag} · ${data.sys_flag}`],
          data.transaction !== "not" && [t("transaction"), t(`transaction.${data.transaction}`)], row.reconsume_times > 0 && [t("reconsumed"), count(row.reconsume_times)],
          row.origin_topic && [t("origin"), topicLink(row.origin_topic)], row.origin_id && [t("origin-id"), link(["messages"], row.origin_id, { unique_key: row.origin_id, topic: row.origin_topic }, { class: "mono" })], [t("offset-id"), h("span", { class: "mono" }, visible(row.offset_id))]], "rows"))),
        sheet(t("message.groups"), { note: data.groups_total > data.groups.length && h("small", {}, t("some-of", { n: data.groups.length, all: data.groups_total })) }, data.groups.length ? table({
          bare: true, id: "at-groups", label: t("message.groups"), rows: data.groups, rowKey: (r) => r.group, columns: [{ key: "group", as: groupLink }, { key: "state", cell: (r) => mark(AT_GROUP[r.state], t(`at-group.${r.state}`)), width: 150 }],
        }) : h("div", { class: "empty" }, t("message.groups.none"))))),
  ];
}

function bodySheet({ body }, query, place) {
  const kinds = [body.text != null && ["text", body.kind === "json" ? "JSON" : t("text")], body.kind !== "empty" && ["hex", t("hex")]].filter(Boolean);
  const view = kinds.some(([k]) => k === query.view) ? query.view : kinds[0]?.[0];
  const size = body.compression ? `${bytes(body.bytes)} (${bytes(body.stored_bytes)} ${body.compression})` : bytes(body.bytes);
  return sheet(t("body"), {
    note: [h("small", {}, [size, body.encoding].filter(Boolean).join(" · "))],
    tools: [kinds.length > 1 && segments(t("body"), view, kinds, (key) => change({ view: key })), body.kind !== "empty" && h("a", { class: "button quiet", download: "body", href: `api/v1/${api("topics", place[0], "messages", ...place.slice(1))}/body` }, icon("file"), t("download"))],
  }, body.kind === "broken" && h("div", { class: "body" }, h("div", { class: "notice bad" }, icon("bad"), h("div", {}, t("body.broken"), " ", visible(body.reason)))),
  view === "hex" ? h("pre", { class: "text hex", tabindex: "0" }, hexRows(body.hex)) : view ? h("pre", { class: "text", tabindex: "0" }, body.kind === "json" ? coloured(readable(body.text)) : readable(body.text)) : h("div", { class: "empty" }, t("body.empty")),
  (view === "hex" ? body.hex_cut : body.text_cut) && h("div", { class: "pages" }, t("body.cut", { bytes: bytes(body.bytes) })));
}

const properties = (data) => sheet(t("properties"), { note: !data.properties_readable && mark("warn", t("properties.unreadable")) }, Object.keys(data.properties).length ? table({
  bare: true, id: "properties", label: t("properties"), rows: Object.entries(data.properties).map(([name, value]) => ({ name, value })), rowKey: (r) => r.name,
  columns: [{ key: "name", mono: true, width: 220 }, { key: "value", mono: true }],
}) : h("div", { class: "empty" }, t("properties.none")));

function messageActions(data, [topic, broker, queue, offset]) {
  const place = { broker, queue: Number(queue), offset: Number(offset) };
  return [
    link(["trace"], t("trace"), { id: data.row.message_id, topic }, { class: "button" }),
    mayChange() && menu(t("actions"), [
      { text: t("do.resend"), run: () => doing({ title: t("do.resend"), confirm: t("do.resend"), fields: [{ name: "target", label: t("do.resend.target"), value: data.row.origin_topic || topic, required: true, wide: true }], wanted: (v) => ({ kind: "resend_message", topic, message: place, target: v.target }) }) },
      { text: t("do.deliver"), run: () => doing({
        title: t("do.deliver"), confirm: t("do.deliver"), intro: t("do.deliver.text"),
        fields: [data.groups.length ? { name: "group", label: t("group"), type: "select", value: data.groups[0].group, options: data.groups.map((g) => ({ value: g.group, label: visible(g.group) })) } : { name: "group", label: t("group"), required: true }, { name: "client_id", label: t("client"), required: true }],
        wanted: (v) => ({ kind: "deliver_message", topic, message: place, group: v.group, client_id: v.client_id }),
      }) },
      topic === "TRANS_CHECK_MAX_TIME_TOPIC" && { text: t("do.resume"), run: () => doing({ title: t("do.resume"), confirm: t("do.resume"), wanted: () => ({ kind: "resume_check", message: place }) }) },
    ]),
  ];
}

// What waits: delayed messages by level, and halves of transactions.

export function delayedPage() {
  const answer = use(api("delayed"), {}, { every: 10_000 });
  return [
    pageHead({ title: t("delayed"), lead: age(answer) }), messageTabs(),
    shown(answer, (data) => {
      const waits = data.levels.reduce((sum, l) => sum + l.waiting, 0);
      return [
        h("div", { class: "figures" }, figure(t("delayed.waiting"), count(waits)), figure(t("half"), count(data.half?.waiting), { under: data.half?.oldest_ms ? t("half.oldest", { ago: ago(data.half.oldest_ms) }) : t("half.text"), href: data.half?.waiting ? to(["half"]) : null })),
        data.levels.length ? table({
          id: "levels", label: t("delayed.levels"), rows: data.levels, rowKey: (r) => String(r.level), main: true, link: (r) => to(["delayed", String(r.level)]),
          columns: [{ key: "level", end: true, width: 90 }, { key: "delay", cell: (r) => link(["delayed", String(r.level)], r.delay_ms == null ? r.delay : span(r.delay_ms), {}, { class: "name" }) },
            { key: "waiting", title: t("delayed.waiting"), end: true, width: 180 }, { key: "delivered", end: true, width: 180 }],
        }) : sheet(t("delayed.levels"), {}, empty(t("delayed.none"), t("delayed.none.text"), "ok"))];
    }),
  ];
}

/** Messages of a level, or halves: the newest first, page by page. */
export function waitingPage([level], query) {
  const answer = use(level ? api("delayed", level, "messages") : api("half", "messages"), { cursor: query.cursor, limit: 100 });
  return [
    pageHead({ title: level ? t("delayed.level", { level }) : t("half"), crumb: link(["delayed"], t("delayed")), lead: age(answer) }),
    inside(answer, (data) => table({
      id: "waiting", main: true, label: t("delayed"), rows: data.rows, total: data.total, rowKey: (r) => `${r.broker} ${r.queue} ${r.offset}`, link: messageAddress,
      columns: [...messageColumns().slice(0, 2), { key: "topic", title: t("topic"), value: (r) => r.origin_topic || r.topic, width: 160 }, ...messageColumns().slice(2)], empty: empty(t("waiting.none"), "", "ok"),
      below: (data.next || query.cursor) && h("div", { class: "pages" }, query.cursor && h("button", { class: "small", onclick: () => change({ cursor: "" }, { replace: false }) }, t("newest.first")), h("span", { class: "grow" }), data.next && h("button", { class: "small", onclick: () => change({ cursor: data.next }, { replace: false }) }, t("older"))),
    })),
  ];
}

// The way of one message: sent, stored, delivered to each group, on one line of time.

const TONES = { sent: 1, stored: 3, delivered: 2, ended: 4 };
const STATUS = { success: "ok", commit: "ok", failed: "bad", rollback: "warn", unknown: "" };

let traced = { asked: null, values: {} };

export function tracePage(_, query) {
  const asked = JSON.stringify([query.id, query.topic, query.trace_topic]);
  if (traced.asked !== asked) traced = { asked, values: { id: query.id || "", topic: query.topic || "", trace_topic: query.trace_topic || "" } };
  const field = (name, more) => inputField({ name, label: t(`trace.${name}`), ...more }, traced.values[name], (v) => (traced.values[name] = v));
  return [
    pageHead({ title: t("trace") }), messageTabs(),
    h("form", { class: "sheet", "aria-label": t("trace"), onsubmit: (event) => {
      event.preventDefault();
      go(["trace"], { ...(query.cluster ? { cluster: query.cluster } : {}), ...traced.values });
    } }, h("div", { class: "form" }, field("id", { required: true, wide: true }), field("topic"), field("trace_topic", { placeholder: "RMQ_SYS_TRACE_TOPIC" }), h("div", { class: "end" }, h("button", { class: "primary", type: "submit" }, t("search"))))),
    query.id ? way(query) : h("section", { class: "sheet fill" }, empty(t("trace.first"), t("trace.first.text"), "search")),
  ];
}

function way(query) {
  const answer = use(api("traces", query.id), { topic: query.topic, trace_topic: query.trace_topic });
  return shown(answer, (data) => {
    if (!data.steps.length) return h("section", { class: "sheet fill" }, empty(t("trace.none"), t("trace.none.text"), "search"));
    const from = Math.min(...data.steps.map((s) => s.at_ms));
    const until = Math.max(...data.steps.map((s) => s.at_ms + (s.cost_ms || 0)), from + 1);
    const x = (ms) => ((ms - from) / (until - from)) * 100;
    return sheet(t("trace.way"), {
      note: h("small", {}, `${moment(from, { full: true })} · ${span(until - from)}`), tools: data.message && h("a", { class: "button quiet", href: messageAddress(data.message) }, t("message")),
    }, h("ol", { class: "timeline" }, data.steps.map((step, i) => h("li", { class: "lane", key: `${i} ${step.at_ms}` },
      h("span", { class: "lane-name" }, h("strong", {}, t(`trace.${step.kind}`)), " ", h("span", { class: "soft" }, visible(step.group)), h("small", { title: visible(step.client) }, visible(step.client))),
      h("span", { class: ["track", `tone${TONES[step.kind]}`], title: moment(step.at_ms, { full: true }) }, h("i", { style: { left: `${Math.min(99, x(step.at_ms)).toFixed(2)}%`, width: `${Math.max(0.6, x(from + (step.cost_ms || 0)) - 0).toFixed(2)}%` } })),
      h("span", { class: "lane-end" }, h("b", {}, `+${span(step.at_ms - from)}`), h("small", {}, step.cost_ms == null ? "" : t("trace.took", { span: span(step.cost_ms) }))),
      h("span", { class: "lane-state" }, mark(STATUS[step.status] ?? "", has(`trace.status.${step.status}`) ? t(`trace.status.${step.status}`) : visible(step.status)), step.retries > 0 && h("small", {}, " ", t("trace.retries", { n: step.retries })))))));
  });
}
