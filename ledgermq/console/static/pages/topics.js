/** Topics: the list, and one with its queues, groups, settings and route. */
import { h } from "../js/dom.js";
import { use } from "../js/live.js";
import { age, api, doing, empty, facts, failed, figure, groupLink, inside, link, mark, mayChange, menu, pageHead, partial, perm, sheet, shown, tabs, to, topicLink, yes } from "../js/parts.js";
import { change } from "../js/router.js";
import { serverTable, table } from "../js/table.js";
import { ago, byteRate, count, rate, short, span, t, visible } from "../js/words.js";

const KINDS = ["normal", "fifo", "delay", "transaction", "mixed", "retry", "dead_letter", "system"];

const TOPIC_COLUMNS = () => [
  { key: "name", title: t("topic"), of: "topic", as: topicLink },
  { key: "kind", cell: (r) => h("span", { class: "tag" }, t(`topic.${r.kind}`)), width: 122 },
  { key: "queues", of: "write_queues", cell: (r) => (r.read_queues === r.write_queues ? count(r.write_queues) : `${r.read_queues} / ${r.write_queues}`), end: true, width: 84, hint: t("queues.hint") },
  { key: "in_per_s", title: t("in"), as: rate, end: true, width: 92 },
  { key: "in_bytes_per_s", title: t("in.bytes"), as: byteRate, end: true, width: 108, fixed: true },
  { key: "messages", title: t("kept"), as: short, end: true, width: 96, hint: t("kept.hint") },
  { key: "last_write", title: t("last-write"), of: "last_write_ms", as: ago, end: true, width: 116 },
  { key: "groups", title: t("groups.label"), end: true, width: 84, fixed: true },
  { key: "brokers", title: t("page.brokers"), value: (r) => r.brokers.join(", "), width: 144, fixed: true },
];

export function topicsPage(_, query) {
  const { view, first } = serverTable({
    id: "topics", path: api("topics"), params: { kinds: query.kinds, columns: "rates,span,groups" }, part: "topics", label: t("page.topics"), columns: TOPIC_COLUMNS(),
    rowKey: (r) => r.topic, link: (r) => to(["topics", r.topic]), sort: "name", failed,
    filters: h("select", { "aria-label": t("kind"), value: query.kinds || "", onchange: (e) => change({ kinds: e.target.value }) },
      h("option", { value: "" }, t("kinds.users")), h("option", { value: KINDS.join(",") }, t("kinds.all")), KINDS.map((kind) => h("option", { value: kind, key: kind }, t(`topic.${kind}`)))),
    empty: empty(t("topics.none"), t("topics.none.text"), "topics", mayChange() && h("button", { class: "primary", onclick: createTopic }, t("do.topic"))),
  });
  return [pageHead({ title: t("page.topics"), lead: age(first), actions: [
    h("a", { class: "button", href: `api/v1/${api("definitions")}`, download: "definitions.json", title: t("definitions.hint") }, t("definitions.save")),
    mayChange() && h("button", { onclick: load }, t("do.import")), mayChange() && h("button", { class: "primary", onclick: createTopic }, t("do.topic"))] }), partial(first.data?.answers), view];
}

/** Topics and groups of a file, made so here: what differs is shown before. */
function load() {
  const file = h("input", { type: "file", accept: ".json,application/json", "aria-label": t("definitions.file"), onchange: async (e) => {
    const field = document.querySelector("#field-definitions");
    const [chosen] = e.target.files;
    if (chosen) field.value = await chosen.text();
    field.dispatchEvent(new Event("input"));
  } });
  doing({
    title: t("do.import.do"), confirm: t("do.import.do"), intro: [t("do.import.text"), " ", file],
    fields: [{ name: "definitions", label: t("definitions"), type: "textarea", required: true, wide: true }],
    wanted: (v) => ({ kind: "import_definitions", definitions: JSON.parse(v.definitions) }),
  });
}

const queueField = (name, value) => ({ name, label: t(`field.${name}`), type: "number", value, min: 1, max: 65535, step: 1, required: true });
const permField = (value) => ({ name: "perm", label: t("field.perm"), type: "select", value: String(value), options: [6, 4, 2].map((v) => ({ value: String(v), label: perm(v) })) });

function createTopic() {
  doing({
    title: t("do.topic"), confirm: t("do.create"),
    fields: [{ name: "topic", label: t("field.name"), required: true, wide: true }, queueField("read_queues", 8), queueField("write_queues", 8), permField(6),
      { name: "message_type", label: t("field.message_type"), type: "select", value: "", options: ["", "NORMAL", "FIFO", "DELAY", "TRANSACTION"].map((value) => ({ value, label: value || t("any") })) },
      { name: "brokers", label: t("page.brokers"), hint: t("field.brokers.hint"), wide: true }, { name: "order", label: t("field.order"), type: "checkbox" }],
    wanted: (v) => ({ kind: "create_topic", topic: v.topic, brokers: words(v.brokers), read_queues: Number(v.read_queues), write_queues: Number(v.write_queues), perm: Number(v.perm), order: v.order, message_type: v.message_type }),
  });
}

const words = (text) => text.split(/[\s,;]+/).filter(Boolean);

export function topicPage([name, tab = "queues"], query, path) {
  const answer = use(api("topics", name), {}, { every: 10_000 });
  const parts = [["queues", t("queues")], ["groups", t("page.consumers")], ["settings", t("settings")]];
  return [
    pageHead({ title: name, crumb: link(["topics"], t("page.topics")), lead: answer.data && [h("span", { class: "tag" }, t(`topic.${answer.data.kind}`)), " ", age(answer)], actions: answer.data && topicActions(answer.data) }),
    shown(answer, (data) => [
      data.differs && h("div", { class: "notice warn" }, t("topic.differs")),
      h("div", { class: "figures" }, figure(t("in"), rate(data.in_per_s), { under: byteRate(data.in_bytes_per_s) }), figure(t("in.today"), short(data.in_today)),
        figure(t("kept"), short(data.messages)), figure(t("last-write"), ago(data.last_write_ms))),
      tabs(t("topic"), parts.map(([key, text]) => [key === "queues" && path.length === 2 ? ["topics", name] : ["topics", name, key], text])),
      tab === "settings" ? topicSettings(data) : tab === "groups" ? groups(name) : topicQueues(name)]),
  ];
}

function topicQueues(name) {
  const answer = use(api("topics", name, "queues"), {}, { every: 10_000 });
  return inside(answer, (data) => {
    const most = Math.max(1, ...data.rows.map((r) => r.messages));
    return table({
      id: "queues", label: t("queues"), rows: data.rows, rowKey: (r) => `${r.broker} ${r.queue}`, total: data.total, main: data.rows.length > 30,
      tools: data.skew > 1.5 && mark("warn", t("skew", { times: data.skew.toFixed(1) }), t("skew.hint")),
      link: (r) => to(["messages"], { topic: name, broker: r.broker, queue: r.queue, at_offset: Math.max(r.min_offset, r.max_offset - 1) }),
      columns: [
        { key: "broker", title: t("broker-group") }, { key: "queue", end: true, width: 80 },
        { key: "min", title: t("offset.min"), of: "min_offset", end: true, width: 130 }, { key: "max", title: t("offset.max"), of: "max_offset", end: true, width: 130 },
        { key: "messages", title: t("kept"), cell: (r) => h("span", { class: "share" }, count(r.messages), h("span", { class: "bar slim", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * r.messages) / most}%` } }))), end: true, width: 190 },
        { key: "oldest", of: "oldest_ms", as: ago, end: true, width: 120 }, { key: "last", title: t("last-write"), of: "last_write_ms", as: ago, end: true, width: 120 },
      ],
    });
  });
}

function groups(name) {
  const { view, first } = serverTable({
    id: "topic-groups", path: api("topics", name, "groups"), label: t("page.consumers"), rowKey: (r) => r.group, link: (r) => to(["consumers", r.group]), failed,
    empty: empty(t("topic.groups.none"), t("topic.groups.none.text"), "consumers"),
    columns: [{ key: "name", title: t("group"), of: "group", as: groupLink, fixed: true }, { key: "lag", title: t("lag.messages"), of: "lag_messages", end: true, width: 140, fixed: true },
      { key: "ms", title: t("lag.time"), of: "lag_ms", as: span, end: true, width: 110, fixed: true }, { key: "out", of: "out_per_s", as: rate, end: true, width: 100, fixed: true }],
  });
  return [partial(first.data?.answers), view];
}

const topicSettings = (data) => [
  table({
    id: "config", label: t("settings"), rows: data.config, rowKey: (r) => r.broker, tools: " ", columns: [
      { key: "broker", title: t("broker-group") }, { key: "read", title: t("field.read_queues"), of: "read_queues", end: true, width: 120 }, { key: "write", title: t("field.write_queues"), of: "write_queues", end: true, width: 120 },
      { key: "perm", title: t("field.perm"), value: (r) => perm(r.perm), width: 130 }, { key: "order", title: t("field.order"), value: (r) => yes(r.order), width: 90 }, { key: "filter", title: t("filter-type"), of: "filter_type", width: 130 }],
  }),
  sheet(t("route"), { note: h("small", {}, t("route.hint")) }, table({
    bare: true, id: "route", label: t("route"), rows: data.route, rowKey: (r) => r.broker, empty: h("div", { class: "empty" }, t("route.none")), columns: [
      { key: "broker", title: t("broker-group") }, { key: "q", title: t("queues"), value: (r) => `${r.read_queues} / ${r.write_queues}`, end: true, width: 110 }, { key: "perm", title: t("field.perm"), value: (r) => perm(r.perm), width: 130 },
      { key: "addresses", title: t("address"), value: (r) => Object.entries(r.addresses).map(([id, a]) => `${id}: ${a}`).join("  "), mono: true, width: "42%" }],
  })),
  data.order_conf && sheet(t("order-conf"), {}, h("pre", { class: "text" }, visible(data.order_conf))),
];

function topicActions(data) {
  const { topic } = data;
  const one = data.config[0];
  return [
    link(["tail", topic], t("tail"), {}, { class: "button" }), link(["messages"], t("find-messages"), { topic }, { class: "button" }),
    mayChange() && menu(t("actions"), [
      { text: t("do.send"), run: () => doing({
        title: t("do.send.to", { name: visible(topic) }), confirm: t("do.send"),
        fields: [{ name: "body", label: t("body"), type: "textarea", required: true }, { name: "keys", label: t("field.keys") }, { name: "tags", label: t("field.tags") }, { name: "delay_level", label: t("field.delay_level"), type: "number", min: 0, max: 64, step: 1, value: 0 }],
        wanted: (v) => ({ kind: "send_message", topic, body: v.body, keys: v.keys, tags: v.tags, delay_level: Number(v.delay_level) }),
      }) },
      one && { text: t("do.change"), run: () => doing({
        title: t("do.change.of", { name: visible(topic) }), confirm: t("do.change"),
        fields: [queueField("read_queues", one.read_queues), queueField("write_queues", one.write_queues), permField(one.perm), { name: "brokers", label: t("page.brokers"), hint: t("field.brokers.hint") }, { name: "order", label: t("field.order"), type: "checkbox", value: one.order }],
        wanted: (v) => ({ kind: "update_topic", topic, brokers: words(v.brokers), read_queues: Number(v.read_queues), write_queues: Number(v.write_queues), perm: Number(v.perm), order: v.order }),
      }) },
      { text: t("do.delete"), danger: true, run: () => doing({ title: t("do.delete.topic", { name: visible(topic) }), confirm: t("do.delete"), danger: true, typed: topic, gone: to(["topics"]), wanted: () => ({ kind: "delete_topic", topic }) }) },
    ]),
  ];
}
