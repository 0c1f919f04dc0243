/** Broker groups: who leads, who is behind, what an acknowledgement means now. */
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { use } from "../js/live.js";
import { age, api, doing, empty, events, facts, link, mark, mayChange, menu, pageHead, sheet, shown, to, toneOf } from "../js/parts.js";
import { bar, plot } from "../js/plot.js";
import { table } from "../js/table.js";
import { ago, bytes, count, has, moment, percent, rate, span, t, visible } from "../js/words.js";

const ROLES = { LEADER: "ok", MASTER: "ok", FOLLOWER: "", SLAVE: "", CANDIDATE: "warn", FAILED: "bad", UNKNOWN: "bad" };

export const role = (m) => mark(m.is_answering ? ROLES[m.role] ?? "" : "bad", m.is_answering ? (has(`role.${m.role}`) ? t(`role.${m.role}`) : visible(m.role)) : t("member.silent"), visible(m.reason));

const behind = (m) => {
  if (m.behind_bytes == null) return "–";
  if (m.behind_bytes === 0) return t("member.level");
  return m.behind_s == null ? bytes(m.behind_bytes) : `${bytes(m.behind_bytes)} · ${span(m.behind_s * 1000)}`;
};

const diskBar = (m) => (m.disk_used_ratio == null ? "–" : bar(m.disk_used_ratio, { tone: m.disk_used_ratio >= 0.9 ? "bad" : m.disk_used_ratio >= 0.75 ? "warn" : "", label: `${percent(m.disk_used_ratio)} · ${bytes(m.disk_free_bytes)}` }));

const COLUMNS = () => [
  { key: "member", cell: (m) => h("span", { class: "name" }, visible(m.member)), width: 82 },
  { key: "role", cell: role, width: 112 },
  { key: "address", mono: true, width: 150 },
  { key: "behind", of: "behind_bytes", cell: behind, end: true, width: 136, hint: t("behind.hint") },
  { key: "in", of: "in_per_s", as: rate, end: true, width: 72 },
  { key: "out", of: "out_per_s", as: rate, end: true, width: 72 },
  { key: "disk", of: "disk_used_ratio", cell: diskBar, width: 150 },
  { key: "answer", of: "answer_ms", cell: (m) => (m.is_answering ? span(m.answer_ms) : ago(m.last_answer_ms)), end: true, width: 96, hint: t("answer.hint") },
  { key: "repair", title: t("state"), cell: (m) => (m.alarms.length ? mark("bad", t("member.alarms", { n: m.alarms.length }), m.alarms.map(visible).join("\n")) : visible(m.repair || "–")), width: 84 },
  { key: "version", width: 78 },
];

const members = (group) => table({ bare: true, id: `members.${group.name}`, label: t("members.of", { name: visible(group.name) }), rows: group.members, rowKey: (m) => m.member + m.address, columns: COLUMNS(), link: () => to(["brokers", group.name]) });

const brokerHealth = (group) => mark(toneOf(group.state), t(`health.${group.state}`));

function durability({ durability: d }) {
  const tone = { majority_synced: "ok", one_synced: "warn", majority_memory: "warn", one_memory: "bad" }[d.code] || "";
  return [h("p", {}, mark(tone, t(`durable.${d.code}`))), h("p", { class: "soft" }, has(`durable.${d.code}.text`) ? t(`durable.${d.code}.text`) : visible(d.text)),
    facts([[t("durable.complete"), `${d.complete} / ${d.members}`], [t("durable.majority"), count(d.majority)],
      [t("durable.lose"), d.may_lose < 0 ? mark("bad", t("durable.stopped")) : count(d.may_lose), t("durable.lose.hint")]], "rows")];
}

export function brokersPage() {
  const answer = use(api("broker-groups"), {}, { every: 5000, part: "broker_groups" });
  return [
    pageHead({ title: t("page.brokers"), lead: age(answer) }),
    shown(answer, (data) => (data.broker_groups.length ? data.broker_groups.map((group) =>
      h("section", { class: "sheet", key: group.name }, h("header", {}, h("h2", {}, link(["brokers", group.name], group.name)), brokerHealth(group),
        h("span", { class: "tag" }, t(`kind.${group.kind}`)), group.term != null && h("span", { class: "tag" }, t("term", { n: String(group.term) })),
        h("span", { class: "grow" }), mark({ majority_synced: "ok", one_synced: "warn", majority_memory: "warn", one_memory: "bad" }[group.durability.code] || "", t(`durable.${group.durability.code}`))),
      members(group)))
      : h("section", { class: "sheet" }, empty(t("brokers.none"), t("brokers.none.text"), "brokers")))),
  ];
}

export function brokerPage([name]) {
  const answer = use(api("broker-groups"), {}, { every: 5000, part: "broker_groups" });
  const group = answer.data?.broker_groups.find((g) => g.name === name);
  return [
    pageHead({ title: name, crumb: link(["brokers"], t("page.brokers")), lead: [group && brokerHealth(group), " ", age(answer)], actions: group && mayChange() && brokerActions(group) }),
    shown(answer, () => (group ? brokerSheets(group) : empty(t("brokers.gone"), t("brokers.gone.text", { name: visible(name) }), "brokers"))),
  ];
}

/** What the members of a group report as wrong, above all figures. */
function alarmBanner(group) {
  const alarms = group.members.flatMap((m) => m.alarms.map((alarm) => h("p", { key: m.member + alarm }, h("strong", {}, visible(m.member)), " ", visible(alarm))));
  return alarms.length > 0 && h("div", { class: "notice bad", key: "alarms", role: "alert", "aria-label": t("alarms") }, icon("bad"), h("div", {}, alarms));
}

function brokerSheets(group) {
  return [
    alarmBanner(group),
    h("section", { class: "sheet" }, h("header", {}, h("h2", {}, t("members")), group.term != null && h("span", { class: "tag" }, t("term", { n: String(group.term) }))), members(group)),
    h("div", { class: "columns" },
      sheet(t("durable"), { class: "third" }, h("div", { class: "body stack" }, durability(group))),
      h("div", { class: "sheet two-thirds" }, plot({ id: "behind", title: t("behind"), format: bytes, factor: 2, series: series(group, "behind_bytes") }))),
    h("div", { class: "columns" },
      h("div", { class: "sheet third" }, plot({ id: "put", title: t("put.p99"), format: span, factor: 60, series: series(group, "put_p99_ms") })),
      h("div", { class: "sheet third" }, plot({ id: "answer", title: t("answer"), format: span, factor: 60, series: series(group, "answer_ms") })),
      sheet(t("timeline"), { class: "third", note: h("small", {}, t("timeline.since")) }, events(group.timeline, t("timeline.none")))),
    sheet(t("log.members"), {}, h("div", { class: "body" }, h("div", { class: "columns" }, group.members.map((m) => h("div", { class: "third", key: m.member + m.address }, h("h3", {}, visible(m.member)),
      facts([[t("log.range"), m.log_end == null ? null : `${count(m.log_begin)} – ${count(m.log_end)}`], [t("dispatch"), bytes(m.dispatch_behind_bytes)], [t("oldest"), moment(m.oldest_ms)], [t("started"), m.started_ms ? ago(m.started_ms) : null],
        [t("state"), visible(m.repair || "–")], m.alarms.length && [t("alarms"), m.alarms.map((a) => h("p", {}, visible(a)))], m.reason && [t("reason"), visible(m.reason)]], "rows")))))),
  ];
}

/** A figure of each member over the last hour. */
function series(group, name) {
  const { data } = use(api("history"), { series: "answer_ms,behind_bytes,put_p99_ms" }, { every: 10_000 });
  return group.members.map((m, i) => {
    const found = data?.series.find((s) => s.name === name && s.member === `${group.name}/${m.member}`);
    return { name: m.member, points: found ? found.at_ms.map((at, n) => [at, found.values[n]]) : [], tone: (i % 5) + 1 };
  });
}

function brokerActions(group) {
  const others = group.members.filter((m) => m.member !== group.leader && m.is_answering);
  return menu(t("actions"), [
    group.kind === "ledger" && others.length > 0 && {
      text: t("do.transfer"), run: () => doing({
        title: t("do.transfer.of", { name: visible(group.name) }), confirm: t("do.transfer"), intro: t("do.transfer.text"),
        fields: [{ name: "member", label: t("do.transfer.to"), type: "select", value: others[0].member, options: others.map((m) => ({ value: m.member, label: `${visible(m.member)} (${m.behind_bytes ? bytes(m.behind_bytes) : t("member.level")})` })) }],
        wanted: (v) => ({ kind: "transfer_leader", broker: group.name, member: v.member }),
      }),
    },
    { text: t("do.clean"), run: () => doing({
      title: t("do.clean.of", { name: visible(group.name) }), confirm: t("do.clean"), danger: true,
      fields: [{ name: "what", label: t("do.clean.what"), type: "select", value: "expired_log", options: ["expired_log", "expired_queues", "unused_topics"].map((value) => ({ value, label: t(`do.clean.${value}`) })) }],
      wanted: (v) => ({ kind: "clean_files", broker: group.name, what: v.what }),
    }) },
    { text: t("do.readonly"), danger: true, run: () => doing({ title: t("do.readonly.of", { name: visible(group.name) }), confirm: t("do.readonly"), danger: true, wanted: () => ({ kind: "set_writable", broker: group.name, writable: false }) }) },
    { text: t("do.writable"), run: () => doing({ title: t("do.writable.of", { name: visible(group.name) }), confirm: t("do.writable"), wanted: () => ({ kind: "set_writable", broker: group.name, writable: true }) }) },
  ]);
}
