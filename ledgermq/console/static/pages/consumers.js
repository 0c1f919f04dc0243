/** Consumer groups and clients: the state in one word, the lag by queue, who consumes, and why it is slow. */
import { h } from "../js/dom.js";
import { use } from "../js/live.js";
import { age, api, doing, empty, events, facts, failed, figure, groupLink, inside, link, mark, mayChange, menu, pageHead, partial, sheet, shown, tabs, to, topicLink, yes } from "../js/parts.js";
import { plot } from "../js/plot.js";
import { change } from "../js/router.js";
import { serverTable, table } from "../js/table.js";
import { ago, count, has, rate, short, span, t, visible } from "../js/words.js";

const GROUP_TONES = { fine: "ok", behind: "warn", stuck: "bad", offline: "", differs: "bad", outside: "bad", unknown: "" };
export const stateMark = (state, hint) => mark(GROUP_TONES[state], t(`group.${state}`), hint || (has(`group.${state}.text`) ? t(`group.${state}.text`) : null));

const GROUP_COLUMNS = () => [
  { key: "name", title: t("group"), value: (r) => r.group, cell: (r) => [groupLink(r.group), r.is_system && h("span", { class: "tag" }, t("topic.system"))] },
  { key: "state", as: stateMark, width: 126, fixed: true },
  { key: "lag_messages", title: t("lag.messages"), end: true, width: 104 },
  { key: "lag_ms", title: t("lag.time"), as: span, end: true, width: 84 },
  { key: "out_per_s", title: t("out"), as: rate, end: true, width: 80 },
  { key: "online", end: true, width: 72, fixed: true },
  { key: "mode", title: t("mode"), value: (r) => [r.mode, r.model].filter(Boolean).join(", ") || null, cell: (r) => [r.mode, r.model].filter(Boolean).map((m) => (has(`mode.${m}`) ? t(`mode.${m}`) : visible(m))).join(", ") || "–", width: 136, fixed: true },
  { key: "retry", title: t("retry-messages"), of: "retry_messages", end: true, width: 76, fixed: true },
  { key: "dead", title: t("page.dead"), of: "dead_letters", cell: (r) => (r.dead_letters ? link(["dead", r.group], count(r.dead_letters)) : count(r.dead_letters)), end: true, width: 112, fixed: true },
];

export function groupsPage(_, query) {
  const { view, first } = serverTable({
    id: "groups", path: api("consumer-groups"), params: { state: query.state, columns: "lag,clients,dead_letters" }, part: "consumer_groups", label: t("page.consumers"), columns: GROUP_COLUMNS(),
    rowKey: (r) => r.group, link: (r) => to(["consumers", r.group]), sort: "name", failed,
    filters: h("select", { "aria-label": t("state"), value: query.state || "", onchange: (e) => change({ state: e.target.value }) },
      h("option", { value: "" }, t("states.all")), Object.keys(GROUP_TONES).slice(0, 6).map((state) => h("option", { value: state, key: state }, t(`group.${state}`)))),
    empty: empty(t("groups.none"), t("groups.none.text"), "consumers"),
  });
  return [
    pageHead({ title: t("page.consumers"), lead: [first.data?.age_s > 10 && h("span", { class: "age" }, t("sorted-by-age", { span: span(first.data.age_s * 1000) })), " ", age(first)], actions: mayChange() && h("button", { class: "primary", onclick: () => edit() }, t("do.group")) }),
    partial(first.data?.answers), view,
  ];
}

function edit(group = "", one = {}) {
  const tick = (name, value) => ({ name, label: t(`field.${name}`), type: "checkbox", value });
  doing({
    title: group ? t("do.change.of", { name: visible(group) }) : t("do.group"), confirm: group ? t("do.change") : t("do.create"),
    fields: [!group && { name: "group", label: t("field.name"), required: true, wide: true },
      { name: "retry_max", label: t("field.retry_max"), type: "number", min: -1, step: 1, value: one.retry_max ?? 16, required: true }, { name: "retry_queues", label: t("field.retry_queues"), type: "number", min: 1, max: 65535, step: 1, value: one.retry_queues ?? 1, required: true },
      { name: "brokers", label: t("page.brokers"), hint: t("field.brokers.hint"), wide: true }, tick("consume_enabled", one.consume_enabled ?? true), tick("from_min_enabled", one.from_min_enabled ?? false), tick("broadcast_enabled", one.broadcast_enabled ?? true), tick("notify_members", one.notify_members ?? true)].filter(Boolean),
    wanted: (v) => ({ kind: "create_group", ...v, group: group || v.group, brokers: v.brokers.split(/[\s,;]+/).filter(Boolean), retry_max: Number(v.retry_max), retry_queues: Number(v.retry_queues) }),
  });
}

export function groupPage([name, tab = "queues", client], query, path) {
  const answer = use(api("consumer-groups", name), {}, { every: 5000, part: "consumer_group" });
  const parts = [["queues", t("lag.by-queue")], ["clients", t("page.clients")], ["settings", t("settings")], ["history", t("timeline.group")]];
  return [
    pageHead({ title: name, crumb: link(["consumers"], t("page.consumers")), lead: answer.data && [stateMark(answer.data.state, visible(answer.data.state_text)), " ", age(answer)], actions: answer.data && groupActions(answer.data) }),
    shown(answer, (data) => [
      data.state !== "fine" && h("div", { class: ["notice", GROUP_TONES[data.state] || "warn"] }, has(`group.${data.state}.text`) ? t(`group.${data.state}.text`) : visible(data.state_text)),
      h("div", { class: "figures" }, figure(t("lag.messages"), short(data.lag_messages)), figure(t("lag.time"), span(data.lag_ms)), figure(t("out"), rate(data.out_per_s)),
        figure(t("online"), count(data.online), { under: [data.mode, data.model].filter(Boolean).map((m) => (has(`mode.${m}`) ? t(`mode.${m}`) : visible(m))).join(", ") || null }),
        figure(t("retry-messages"), short(data.retry_messages)), figure(t("page.dead"), short(data.dead_letters), { href: data.dead_letters ? to(["dead", name]) : null })),
      ["queues", "history"].includes(tab) && h("div", { class: "columns" }, lags(name)),
      tabs(t("group"), parts.map(([key, text]) => [key === "queues" && path.length === 2 ? ["consumers", name] : key === "clients" && client ? ["consumers", name, key, client] : ["consumers", name, key], text])),
      tab === "clients" ? (client ? running(name, client, query) : clients(name)) : tab === "settings" ? groupSettings(data) : tab === "history" ? h("section", { class: "sheet" }, events(data.timeline, t("timeline.group.none"))) : groupQueues(name, query)]),
  ];
}

/** How far the group was behind in the last hour. */
function lags(name) {
  const { data } = use(api("consumer-groups", name, "history"), {}, { every: 10_000 });
  return [["lag_messages", t("lag.messages"), short], ["lag_ms", t("lag.time"), span, 60]].map(([key, title, format, factor]) => {
    const found = data?.series.find((s) => s.name === key);
    return h("div", { class: "sheet half", key }, plot({ id: `group-${key}`, title, format, factor, series: [{ name: title, points: found ? found.at_ms.map((at, n) => [at, found.values[n]]) : [] }] }));
  });
}

function groupQueues(name, query) {
  const { view, first } = serverTable({
    id: "group-queues", path: api("consumer-groups", name, "queues"), params: { owners: query.owners ? "true" : "" }, label: t("lag.by-queue"), rowKey: (r) => `${r.topic} ${r.broker} ${r.queue}`, sort: "queue", failed,
    filters: h("label", { class: "field tick inline" }, h("input", { type: "checkbox", checked: Boolean(query.owners), onchange: (e) => change({ owners: e.target.checked ? "1" : "" }) }), t("owners")),
    empty: empty(t("group.queues.none"), t("group.queues.none.text"), "consumers"), tone: (r) => r.lag_messages > 0 && "lags",
    columns: [
      { key: "topic", as: topicLink, fixed: true }, { key: "broker", title: t("broker-group"), width: 130, fixed: true }, { key: "queue", end: true, width: 88 },
      { key: "committed", title: t("offset.committed"), end: true, width: 124, fixed: true }, { key: "max", title: t("offset.max"), of: "max_offset", end: true, width: 124, fixed: true },
      { key: "lag_messages", title: t("lag.messages"), end: true, width: 110 }, { key: "lag_ms", title: t("lag.time"), as: span, end: true, width: 92 },
      query.owners && { key: "owner", cell: (r) => (r.owner ? link(["consumers", name, "clients", r.owner], r.owner) : "–"), width: 200, fixed: true }].filter(Boolean),
  });
  return [partial(first.data?.answers), view];
}

function clients(name) {
  const answer = use(api("consumer-groups", name, "clients"), {}, { every: 10_000 });
  return inside(answer, (data) => table({
    id: "members", label: t("page.clients"), rows: data.rows, rowKey: (r) => r.client_id, main: data.rows.length > 30, link: (r) => to(["consumers", name, "clients", r.client_id]), tools: " ",
    empty: empty(t("group.clients.none"), t("group.clients.none.text"), "clients"),
    columns: [{ key: "id", title: t("client"), of: "client_id", cell: (r) => link(["consumers", name, "clients", r.client_id], r.client_id, {}, { class: "name" }) }, { key: "address", mono: true, width: 190 },
      { key: "language", width: 110 }, { key: "version", width: 110 }, { key: "brokers", title: t("page.brokers"), value: (r) => r.brokers.join(", "), width: 180 }],
  }));
}

function running(name, client, query) {
  const answer = use(api("consumer-groups", name, "clients", client), { stacks: query.stacks ? "true" : "" });
  return [
    h("h2", { class: "mono" }, visible(client)),
    h("div", {}, h("button", { onclick: () => change({ stacks: query.stacks ? "" : "1" }) }, query.stacks ? t("stacks.hide") : t("stacks.show"))),
    shown(answer, (data) => [
      table({
        id: "running-topics", label: t("page.topics"), rows: data.topics, rowKey: (r) => r.topic, tools: " ", columns: [{ key: "topic", as: topicLink }, { key: "ms", title: t("consume-ms"), of: "consume_ms", as: span, end: true, width: 130 },
          { key: "ok", title: t("consume-ok"), of: "ok_per_s", as: rate, end: true, width: 110 }, { key: "bad", title: t("consume-failed"), of: "failed_per_s", as: rate, end: true, width: 110 }, { key: "hour", title: t("consume-failed-hour"), of: "failed_last_hour", end: true, width: 150 }],
      }),
      table({
        id: "running-queues", label: t("queues"), rows: data.queues, rowKey: (r) => `${r.topic} ${r.broker} ${r.queue}`, tools: " ", columns: [{ key: "topic" }, { key: "broker", title: t("broker-group"), width: 130 }, { key: "queue", end: true, width: 88 },
          { key: "cached", cell: (r) => `${count(r.cached)} · ${count(r.cached_mib)} MiB`, end: true, width: 140 }, { key: "state", title: t("state"), value: (r) => (r.dropped ? t("queue.dropped") : r.locked ? t("queue.locked") : t("queue.held")), width: 110 },
          { key: "pull", title: t("last-pull"), of: "last_pull_ms", as: ago, end: true, width: 120 }, { key: "consume", title: t("last-consume"), of: "last_consume_ms", as: ago, end: true, width: 120 }],
      }),
      data.stacks != null && sheet(t("stacks"), { note: data.stacks_cut && h("small", {}, t("cut")) }, h("pre", { class: "text", tabindex: "0" }, visibleLines(data.stacks))),
      sheet(t("properties"), {}, h("div", { class: "body" }, facts(Object.entries(data.properties).map(([k, v]) => [visible(k), visible(v)])))),
    ]),
  ];
}

const visibleLines = (text) => text.split("\n").map(visible).join("\n");

const groupSettings = (data) => [
  sheet(t("subscriptions"), {}, data.subscriptions.length ? table({
    bare: true, id: "subscriptions", label: t("subscriptions"), rows: data.subscriptions, rowKey: (r) => r.topic, columns: [{ key: "topic", as: topicLink }, { key: "kind", width: 110 }, { key: "expression", mono: true, width: "45%" }],
  }) : h("div", { class: "empty" }, t("subscriptions.none"))),
  sheet(t("settings"), { note: data.differs && mark("bad", t("differs")) }, table({
    bare: true, id: "config", label: t("settings"), rows: data.config, rowKey: (r) => r.broker, columns: [{ key: "broker", title: t("broker-group") },
      ...["consume_enabled", "from_min_enabled", "broadcast_enabled", "notify_members"].map((key) => ({ key, title: t(`field.${key}`), value: (r) => yes(r[key]), width: 130, hint: t(`field.${key}`) })),
      { key: "retry_queues", title: t("field.retry_queues"), end: true, width: 110 }, { key: "retry_max", title: t("field.retry_max"), end: true, width: 110 }],
  })),
];

/** A moment as the field for local times takes it. */
const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

function groupActions(data) {
  const { group } = data;
  const topics = data.subscriptions.map((s) => s.topic);
  const topicField = topics.length ? { name: "topic", label: t("topic"), type: "select", value: topics[0], options: topics.map((value) => ({ value, label: visible(value) })), wide: true } : { name: "topic", label: t("topic"), required: true, wide: true };
  return mayChange() && menu(t("actions"), [
    { text: t("do.reset"), run: () => doing({
      title: t("do.reset.of", { name: visible(group) }), confirm: t("do.reset"), danger: true, intro: data.online > 0 ? t("do.reset.online") : t("do.reset.text"),
      fields: [topicField, { name: "to", label: t("do.reset.to"), type: "select", value: "time", options: ["time", "earliest", "latest", "offset", "shift"].map((value) => ({ value, label: t(`do.reset.${value}`) })) },
        { name: "moment", label: t("moment"), type: "datetime-local", value: local(Date.now() - 3_600_000), when: (v) => v.to === "time", required: true },
        { name: "value", label: t("value"), type: "number", step: 1, when: (v) => v.to === "offset" || v.to === "shift", required: true, hint: t("do.reset.value.hint") },
        { name: "broker", label: t("broker-group"), hint: t("do.reset.all-queues") }, { name: "queue", label: t("queue"), type: "number", min: 0, step: 1, hint: t("do.reset.all-queues") }],
      wanted: (v) => ({ kind: "reset_offset", group, topic: v.topic, to: v.to, moment_ms: v.to === "time" ? new Date(v.moment).getTime() : null, value: ["offset", "shift"].includes(v.to) ? Number(v.value) : null, broker: v.broker, queue: v.queue === "" ? null : Number(v.queue) }),
    }) },
    { text: t("do.clone"), run: () => doing({
      title: t("do.clone.of", { name: visible(group) }), confirm: t("do.clone"), danger: true, fields: [topicField, { name: "target", label: t("do.clone.target"), required: true, wide: true }],
      wanted: (v) => ({ kind: "clone_offsets", group, target: v.target, topic: v.topic }),
    }) },
    { text: t("do.change"), run: () => edit(group, data.config[0]) },
    { text: t("do.delete"), danger: true, run: () => doing({
      title: t("do.delete.group", { name: visible(group) }), confirm: t("do.delete"), danger: true, typed: group, gone: to(["consumers"]), fields: [{ name: "offsets", label: t("do.delete.offsets"), type: "checkbox", value: true }, { name: "topics", label: t("do.delete.topics"), type: "checkbox" }],
      wanted: (v) => ({ kind: "delete_group", group, offsets: v.offsets, topics: v.topics }),
    }) },
  ]);
}

/** Who is connected to the cluster: producers and consumers, their language, version and groups. */
export function clientsPage(_, query) {
  const { view, first } = serverTable({
    id: "clients", path: api("clients"), params: { kind: query.kind }, label: t("page.clients"), rowKey: (r) => r.client_id, sort: "client_id", failed, empty: empty(t("clients.no"), t("clients.no.text"), "clients"),
    filters: h("select", { "aria-label": t("kind"), value: query.kind || "", onchange: (e) => change({ kind: e.target.value }) }, h("option", { value: "" }, t("all")), ["consumer", "producer"].map((kind) => h("option", { value: kind, key: kind }, t(`client.${kind}`)))),
    columns: [
      { key: "client_id", title: t("client"), cell: (r) => h("span", { class: "name" }, visible(r.client_id)) }, { key: "kinds", title: t("kind"), value: (r) => r.kinds.join(" "), cell: (r) => r.kinds.map((kind) => h("span", { class: "tag", key: kind }, t(`client.${kind}`))), width: 178, fixed: true },
      { key: "address", mono: true, width: 190 }, { key: "language", width: 110 },
      { key: "version", cell: (r) => (r.outdated ? mark("warn", visible(r.version), t("client.outdated")) : visible(r.version)), width: 130 },
      { key: "groups", title: t("groups.label"), value: (r) => r.groups.join(" "), cell: (r) => (r.kinds.includes("consumer") ? r.groups.map((g, i) => [i > 0 && ", ", groupLink(g)]) : visible(r.groups.join(", "))), width: 260, fixed: true }],
  });
  const data = first.data;
  return [
    pageHead({ title: t("page.clients"), lead: [data?.age_s > 10 && h("span", { class: "age" }, t("age", { span: span(data.age_s * 1000) })), " ", age(first)] }),
    data && (data.groups_asked < data.groups || !data.producers_told) && h("div", { class: "notice warn", role: "status" }, h("div", {}, data.groups_asked < data.groups && t("clients.asked", { asked: data.groups_asked, all: data.groups }), " ", !data.producers_told && t("clients.producers"))),
    partial(data?.answers), view,
  ];
}
