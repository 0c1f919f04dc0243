/** Parts that all pages are made of: heads, sheets, states, figures with unit and age, what is missing. */
import { openChange, problem } from "./change.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { refresh } from "./live.js";
import { sparkline } from "./plot.js";
import { address, readRoute } from "./router.js";
import { waiting } from "./table.js";
import { count, has, moment, span, t, visible } from "./words.js";

/** Who looks, and at which cluster. */
export const site = { session: null, clusters: null, cluster: "", problem: null };

/** The address in the API of something of the chosen cluster. */
export const api = (...parts) => ["clusters", site.cluster, ...parts].map(encodeURIComponent).join("/");

/** The address of a page, at the chosen cluster. */
export function to(path, query = {}) {
  const first = site.clusters?.clusters[0]?.id;
  return address(path, site.cluster && site.cluster !== first ? { cluster: site.cluster, ...query } : query);
}

export const mayChange = () => Boolean(site.session?.may_change);

/** Asks for a change of the chosen cluster. */
export const doing = (options) => openChange({ actions: api("actions"), ...options });

export const link = (path, text, query, props = {}) => h("a", { href: to(path, query), ...props }, typeof text === "string" ? visible(text) : text);
export const topicLink = (name) => link(["topics", name], name, {}, { class: "name", title: visible(name) });
export const groupLink = (name) => link(["consumers", name], name, {}, { class: "name", title: visible(name) });

export const pageHead = ({ title, crumb, lead, actions }) =>
  h("header", { class: "page-head" }, crumb && h("nav", { class: "crumb", "aria-label": t("crumb") }, crumb),
    h("h1", { tabindex: "-1" }, typeof title === "string" ? visible(title) : title), lead && h("div", { class: "lead" }, lead), actions && h("div", { class: "actions" }, actions));

export const sheet = (title, { tools = null, note = null, ...props } = {}, ...body) =>
  h("section", { ...props, class: ["sheet", props.class] }, h("header", {}, h("h2", {}, title), note, h("span", { class: "grow" }), tools), body);

export const facts = (pairs, kind = "") =>
  h("dl", { class: ["facts", kind] }, pairs.filter(Boolean).map(([name, value, hint]) => h("div", { title: hint }, h("dt", {}, name), h("dd", {}, value ?? "–"))));

/** A word with a sign and a colour: never a colour alone. */
export const mark = (tone, text, hint) =>
  h("span", { class: ["state", tone], title: hint }, icon({ ok: "ok", warn: "warn", bad: "bad" }[tone] || "idle"), text);

const SEVERITIES = { ok: "ok", info: "", warning: "warn", critical: "bad" };
export const toneOf = (severity) => SEVERITIES[severity] ?? "";

export const empty = (title, text, sign = "idle", action = null) =>
  h("div", { class: "empty" }, icon(sign), h("strong", {}, title), text && h("p", {}, text), action);

/** Says what a server that did not answer means, and who it was. */
export function partial(answers) {
  if (!answers || answers.answered >= answers.asked) return null;
  return h("details", { class: "notice warn", key: "partial" }, h("summary", {}, h("strong", {}, t("partial", { answered: answers.answered, asked: answers.asked }))),
    h("ul", {}, answers.silent.map((who) => h("li", {}, visible(who.who), who.address && who.address !== who.who && ` (${visible(who.address)})`, ": ", visible(who.reason)))));
}

/** Age of an answer, told when it is old. */
export function age(answer) {
  if (!answer.at) return null;
  const old = Date.now() - answer.at;
  if (old < 10_000 && !answer.error) return null;
  return h("span", { class: ["age", old > 30_000 && "old"] }, t("age", { span: span(Math.floor(old / 1000) * 1000) }));
}

export const failed = (answer) => h("div", { class: "body" }, problem(answer.error), h("p", { class: "retry" }, h("button", { onclick: () => refresh(answer.key) }, t("retry"))));

/** What an answer shows: that it is awaited, why it failed, or its data; old data stay with a word. */
export function shown(answer, view, { late = false } = {}) {
  if (answer.data == null) return answer.error ? failed(answer) : waiting();
  return [
    answer.error && h("div", { class: "notice warn", key: "stale", role: "status" }, icon("warn"), h("div", {}, t("stale", { span: span(Date.now() - answer.at) }))),
    !late && partial(answer.data.answers), view(answer.data),
  ];
}

/** The same inside of a sheet, whose notices need room around them. */
export const inside = (answer, view) => {
  if (answer.data == null) return answer.error ? failed(answer) : waiting();
  const note = partial(answer.data.answers);
  return [note && h("div", { class: "body" }, note), view(answer.data)];
};

export function figure(name, value, { unit = "", under = null, values = null, tone = 1, href = null } = {}) {
  const split = typeof value === "string" ? value.match(/^([\d.,–-]+)\s*(.*)$/s) : null;
  return h(href ? "a" : "div", { class: "figure", key: name, href }, h("span", { class: "name" }, name),
    h("span", { class: "number" }, split ? split[1] : value, (split?.[2] || unit) && h("span", { class: "unit" }, split?.[2]?.startsWith("/") ? "" : " ", split?.[2] || unit)),
    values && sparkline(values, { tone }), under != null && h("span", { class: "under" }, under));
}

/** A text of the server's by its code in the reader's language; else as the server said it. */
export function said(kind, { code, text, subject, values }) {
  const key = `${kind}.${code}`;
  return visible(has(key) ? t(key, { subject, ...values }) : text);
}

export const events = (list, none) => (list.length
  ? h("ol", { class: "events", tabindex: "0", "aria-label": t("events") }, list.map((e) => h("li", { key: `${e.at_ms} ${e.code} ${e.subject}` },
    h("time", { datetime: new Date(e.at_ms).toISOString(), title: moment(e.at_ms, { full: true }) }, moment(e.at_ms)),
    h("span", {}, e.severity !== "info" && [mark(toneOf(e.severity), t(`severity.${e.severity}`)), " "], said("event", e)))))
  : h("div", { class: "empty" }, none));

export const tabs = (label, list) =>
  h("nav", { class: "tabs", "aria-label": label }, list.map(([path, text, query]) => h("a", { href: to(path, query), "aria-current": readRoute().path.join("/") === path.join("/") ? "page" : null }, text)));

/** A choice of one in few, kept in the address. */
export const segments = (label, value, options, choose) =>
  h("div", { class: "segments", role: "group", "aria-label": label }, options.map(([key, text]) => h("button", { key, "aria-pressed": String(key === value), onclick: () => choose(key) }, text)));

/** Actions that are not needed often, behind a button. */
export const menu = (label, list) => h("details", {
  class: "menu",
  onkeydown: (event) => {
    if (event.key === "Escape" && event.currentTarget.open) {
      event.currentTarget.open = false;
      event.currentTarget.querySelector("summary").focus();
      event.stopPropagation();
    }
  },
}, h("summary", { class: "button" }, label, icon("down")),
h("div", { class: "menu-body" }, list.filter(Boolean).map((item) => h("button", {
  class: item.danger && "danger",
  onclick: (event) => {
    event.currentTarget.closest("details").open = false;
    item.run();
  },
}, item.text))));

export const yes = (value) => (value ? t("yes") : t("no"));
export const perm = (value) => t(`perm.${[2, 4, 6].includes(value) ? value : "other"}`);
export const lag = (messages, ms) => (messages == null ? "–" : ms != null && messages > 0 ? `${count(messages)} · ${span(ms)}` : count(messages));
