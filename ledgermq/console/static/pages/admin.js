/** Who may what, settings in force and where they differ, logs, and what was changed. */
import { request } from "../js/api.js";
import { inputField, problem, tally } from "../js/change.js";
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { redraw, use } from "../js/live.js";
import { age, api, doing, empty, mark, mayChange, pageHead, segments, sheet, shown, tabs } from "../js/parts.js";
import { change } from "../js/router.js";
import { table } from "../js/table.js";
import { has, moment, span, t, visible } from "../js/words.js";

const adminTabs = () => tabs(t("page.admin"), [[["access"], t("access")], [["configuration"], t("configuration")], [["log"], t("log")], [["changes"], t("changes")], [["audit"], t("audit")]]);

/** The question "may X do Y?" and its answer. */
let may = { values: { access_key: "", kind: "topic", name: "", what: "SUB" }, answer: null, error: null };

async function askMay(event) {
  event.preventDefault();
  may.answer = null;
  may.error = null;
  try {
    may.answer = await request("POST", api("access", "may"), { body: may.values });
  } catch (error) {
    may.error = error;
  }
  redraw();
}

export function accessPage() {
  const answer = use(api("access"), {}, { every: 30_000 });
  return [
    pageHead({ title: t("access"), lead: age(answer), actions: mayChange() && answer.data?.enabled && h("button", { class: "primary", onclick: () => account() }, t("do.account")) }), adminTabs(),
    shown(answer, (data) => (data.enabled ? [tester(data), accounts(data)]
      : h("section", { class: "sheet fill" }, empty(t("access.off"), data.reason ? visible(data.reason) : t("access.off.text"), "key")))),
  ];
}

function tester(data) {
  const field = (name, more = {}) => inputField({ name, label: t(`may.${name}`), ...more }, may.values[name], (v) => {
    may.values[name] = v;
    may.answer = null;
    redraw();
  });
  return sheet(t("may"), {}, h("form", { class: "form", onsubmit: askMay }, field("access_key", { type: "select", options: [{ value: "", label: "" }, ...data.accounts.map((a) => ({ value: a.access_key, label: visible(a.access_key) }))], required: true }),
    field("what", { type: "select", options: [{ value: "PUB", label: t("may.pub") }, { value: "SUB", label: t("may.sub") }] }), field("kind", { type: "select", options: [{ value: "topic", label: t("topic") }, { value: "group", label: t("group") }] }), field("name", { required: true }),
    h("div", { class: "end" }, h("button", { type: "submit" }, t("may.ask")))),
  (may.answer || may.error) && h("div", { class: "body", "aria-live": "polite" }, may.error ? problem(may.error) : h("div", { class: ["notice", may.answer.allowed ? "ok" : "bad"] }, icon(may.answer.allowed ? "ok" : "bad"), h("div", {}, h("strong", {}, may.answer.allowed ? t("may.yes") : t("may.no")), " ", visible(may.answer.because)))));
}

const accounts = (data) => table({
  id: "accounts", main: true, label: t("accounts"), rows: data.accounts, rowKey: (r) => r.access_key, empty: empty(t("accounts.none"), "", "key"),
  tools: data.open_addresses.length > 0 && mark("warn", t("accounts.open", { n: data.open_addresses.length }), data.open_addresses.map(visible).join("\n")),
  columns: [
    { key: "key", title: t("account"), of: "access_key", cell: (r) => h("span", { class: "name", title: visible(r.access_key) }, visible(r.access_key), r.differs && [" ", mark("bad", t("differs"))]), width: 160 }, { key: "admin", title: t("role"), value: (r) => (r.is_admin ? t("role.admin") : t("role.user")), width: 116 },
    { key: "addresses", title: t("accounts.addresses"), value: (r) => r.addresses || "*", mono: true, width: 100 }, { key: "default_topic", title: t("accounts.default_topic"), width: 110, hint: t("accounts.default.hint") }, { key: "default_group", title: t("accounts.default_group"), width: 114, hint: t("accounts.default.hint") },
    { key: "topics", title: t("page.topics"), value: (r) => r.topics.join(", "), mono: true }, { key: "groups", title: t("page.consumers"), value: (r) => r.groups.join(", "), mono: true },
    ...(mayChange() ? [{ key: "do", title: t("actions"), value: () => "", cell: (r) => [h("button", { class: "small quiet", onclick: () => account(r) }, t("do.change")), h("button", { class: "small quiet", onclick: () => doing({ title: t("do.delete.account", { name: visible(r.access_key) }), confirm: t("do.delete"), danger: true, typed: r.access_key, wanted: () => ({ kind: "delete_account", access_key: r.access_key }) }) }, t("do.delete"))], width: 146, fixed: true }] : [])],
});

function account(one = null) {
  const rules = ["", "DENY", "PUB", "SUB", "PUB|SUB"].filter((v) => v || !one).map((value) => ({ value, label: value || t("unchanged") }));
  const list = (text) => text.split(/[\n,]+/).map((x) => x.trim()).filter(Boolean);
  doing({
    title: one ? t("do.change.of", { name: visible(one.access_key) }) : t("do.account"), confirm: one ? t("do.change") : t("do.create"),
    fields: [!one && { name: "access_key", label: t("account"), required: true }, { name: "secret_key", label: t("sign-in.secret"), type: "password", required: !one, hint: one ? t("unchanged.hint") : t("secret.hint") }, { name: "addresses", label: t("accounts.addresses"), value: one?.addresses ?? "" },
      { name: "default_topic", label: t("accounts.default_topic"), type: "select", value: one?.default_topic ?? "DENY", options: rules }, { name: "default_group", label: t("accounts.default_group"), type: "select", value: one?.default_group ?? "DENY", options: rules },
      { name: "topics", label: t("accounts.topics"), type: "textarea", value: (one?.topics ?? []).join("\n"), hint: t("accounts.rules.hint") }, { name: "groups", label: t("accounts.groups"), type: "textarea", value: (one?.groups ?? []).join("\n") }, { name: "is_admin", label: t("role.admin"), type: "checkbox", value: one?.is_admin ?? false }].filter(Boolean),
    wanted: (v) => ({ kind: "put_account", access_key: one?.access_key ?? v.access_key, secret_key: v.secret_key || null, is_admin: v.is_admin, addresses: v.addresses || null, default_topic: v.default_topic || null, default_group: v.default_group || null, topics: list(v.topics), groups: list(v.groups) }),
  });
}

export function configurationPage(_, query) {
  const answer = use(api("configuration"), { broker_group: query.group, differs: query.differs ? "true" : "", limit: 1000 }, { every: 30_000 });
  const setting = (s, members) => doing({
    title: t("do.setting", { name: visible(s.key) }), confirm: t("do.change"), danger: true,
    fields: [{ name: "value", label: visible(s.key), value: s.values[0]?.value ?? "", required: true, wide: true }, { name: "member", label: t("member"), type: "select", value: "", options: [{ value: "", label: t("all") }, ...members.map((m) => ({ value: m, label: visible(m) }))] }],
    wanted: (v) => ({ kind: "change_setting", key: s.key, value: v.value, members: v.member ? [v.member] : [] }),
  });
  return [
    pageHead({ title: t("configuration"), lead: age(answer) }), adminTabs(),
    shown(answer, (data) => {
      const equal = (s) => new Set(s.values.map((v) => v.value)).size <= 1;
      return table({
        id: "settings", main: true, label: t("settings"), rows: data.settings, rowKey: (s) => s.key, sort: "key", tone: (s) => s.differs && "differs",
        filters: h("label", { class: "field tick inline" }, h("input", { type: "checkbox", checked: Boolean(query.differs), onchange: (e) => change({ differs: e.target.checked ? "1" : "" }) }), t("configuration.differs")),
        empty: query.differs ? empty(t("configuration.equal"), t("configuration.equal.text"), "ok") : empty(t("configuration.none"), "", "admin"),
        columns: [
          { key: "key", title: t("setting"), cell: (s) => h("span", { class: "mono name" }, visible(s.key)), width: 270 },
          { key: "value", title: t("value"), value: (s) => (equal(s) ? s.values[0]?.value : s.values.map((v) => `${v.member}=${v.value ?? "–"}`).join("  ")), cell: (s) => (equal(s) ? h("span", { class: "mono" }, visible(s.values[0]?.value ?? "–")) : s.values.map((v) => h("span", { class: "tag", key: v.member }, visible(v.member), " ", h("b", { class: "mono" }, visible(v.value ?? "–"))))) },
          { key: "differs", title: t("state"), value: (s) => Number(s.differs), cell: (s) => (s.differs ? mark("warn", t("differs")) : equal(s) ? "" : t("own")), width: 110, hint: t("differs.hint") },
          ...(mayChange() ? [{ key: "do", title: t("actions"), value: () => "", cell: (s) => (s.changeable ? h("button", { class: "small quiet", onclick: () => setting(s, data.members) }, t("do.change")) : ""), width: 96, fixed: true }] : [])],
      });
    }),
  ];
}

const LEVELS = ["", "debug", "info", "warn", "error", "critical"];
const LEVEL_TONES = { warn: "warn", error: "bad", critical: "bad" };

const logLevel = () => doing({
  title: t("do.level"), confirm: t("do.change"), intro: t("do.level.text"),
  fields: [{ name: "namespace", label: t("log.namespace"), value: "ledgermq", required: true }, { name: "level", label: t("log.level"), type: "select", value: "debug", options: LEVELS.slice(1).map((value) => ({ value, label: value })) }],
  wanted: (v) => ({ kind: "change_setting", key: `logLevel.${v.namespace}`, value: v.level }),
});

export function logPage(_, query) {
  const answer = use(api("log"), { node: query.node, level: query.level, filter: query.filter, limit: 2000 }, { every: 5000 });
  return [
    pageHead({ title: t("log"), lead: age(answer), actions: mayChange() && h("button", { onclick: logLevel }, t("do.level")) }), adminTabs(),
    shown(answer, (data) => (data.available ? table({
      id: "log", main: true, label: t("log"), rows: data.lines.map((line, i) => ({ ...line, i })), rowKey: (r) => `${r.i} ${r.time}`, sort: "-i",
      filters: [h("select", { "aria-label": t("log.node"), value: query.node || "", onchange: (e) => change({ node: e.target.value }) }, h("option", { value: "" }, t("log.nodes")), data.nodes.map((n) => h("option", { value: n, key: n }, visible(n)))),
        h("select", { "aria-label": t("log.level"), value: query.level || "", onchange: (e) => change({ level: e.target.value }) }, LEVELS.map((l) => h("option", { value: l, key: l || "all" }, l ? t("log.from", { level: l }) : t("log.levels"))))],
      empty: empty(t("log.none"), t("log.none.text"), "idle"),
      columns: [{ key: "i", title: t("log.time"), cell: (r) => h("span", { class: "mono" }, visible(r.time)), width: 220 }, { key: "node", title: t("log.node"), width: 90 }, { key: "level", title: t("log.level"), cell: (r) => (LEVEL_TONES[r.level] ? mark(LEVEL_TONES[r.level], visible(r.level)) : visible(r.level || "–")), width: 100 },
        { key: "text", mono: true }],
    }) : h("section", { class: "sheet fill" }, empty(t("log.off"), t("log.off.text"), "idle")))),
  ];
}

const OUTCOMES = { done: "ok", refused: "warn", failed: "bad" };
const named = (kind) => (has(`action.${kind}`) ? t(`action.${kind}`) : visible(kind));

export function auditPage(_, query) {
  const answer = use(api("audit"), { outcome: query.outcome, limit: 200, offset: query.page ? Number(query.page) * 200 : "" }, { every: 10_000 });
  const page = Number(query.page || 0);
  return [
    pageHead({ title: t("audit"), lead: [t("audit.text"), " ", age(answer)] }), adminTabs(),
    shown(answer, (data) => table({
      id: "audit", main: true, label: t("audit"), rows: data.entries.map((e, i) => ({ ...e, i })), total: data.total, rowKey: (e) => `${e.at_ms} ${e.i}`,
      filters: segments(t("outcome"), query.outcome || "", [["", t("all")], ...Object.keys(OUTCOMES).map((o) => [o, t(`outcome.${o}`)])], (outcome) => change({ outcome, page: "" })), empty: empty(t("audit.none"), "", "ok"),
      below: data.total > 200 && h("div", { class: "pages" }, h("button", { class: "small", disabled: page === 0, onclick: () => change({ page: page - 1 || "" }, { replace: false }) }, t("newer")), h("span", { class: "grow" }), h("button", { class: "small", disabled: (page + 1) * 200 >= data.total, onclick: () => change({ page: page + 1 }, { replace: false }) }, t("older"))),
      columns: [{ key: "at", title: t("moment"), of: "at_ms", as: moment, width: 160 }, { key: "account", title: t("account"), value: (e) => e.account || "–", width: 120 }, { key: "address", mono: true, width: 140 },
        { key: "action", title: t("action"), value: (e) => named(e.action), width: 170 }, { key: "object", width: 200 }, { key: "outcome", cell: (e) => mark(OUTCOMES[e.outcome], t(`outcome.${e.outcome}`)), width: 110 }, { key: "detail" }],
    })),
  ];
}

export function changesPage() {
  const answer = use(api("actions"), {}, { every: 5000 });
  return [
    pageHead({ title: t("changes"), lead: [t("changes.text"), " ", age(answer)] }), adminTabs(),
    shown(answer, (data) => table({
      id: "changes", main: true, label: t("changes"), rows: data.rows, rowKey: (r) => r.id, empty: empty(t("changes.none"), t("changes.none.text"), "ok"),
      columns: [{ key: "begun", title: t("moment"), of: "begun_ms", as: moment, width: 160 }, { key: "account", title: t("account"), value: (r) => r.account || "–", width: 120 }, { key: "kind", title: t("action"), value: (r) => named(r.kind), width: 150 }, { key: "summary", title: t("detail") },
        { key: "state", cell: (r) => mark({ done: "ok", stopped: "warn" }[r.state] || "", t(`action-state.${r.state}`)), width: 120 }, { key: "counts", title: t("change.result"), value: (r) => tally(r.counts), width: 220 }, { key: "took", title: t("took"), value: (r) => (r.ended_ms ? r.ended_ms - r.begun_ms : null), cell: (r) => (r.ended_ms ? span(r.ended_ms - r.begun_ms) : "–"), end: true, width: 90 }],
    })),
  ];
}
