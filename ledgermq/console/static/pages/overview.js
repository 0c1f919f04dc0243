/** Is it healthy, what does it do, what happened? */
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { hour } from "../js/history.js";
import { use } from "../js/live.js";
import { api, age, events, figure, groupLink, link, pageHead, partial, said, sheet, shown, site, to, toneOf, topicLink } from "../js/parts.js";
import { bar, plot } from "../js/plot.js";
import { table } from "../js/table.js";
import { byteRate, bytes, count, percent, rate, short, span, t } from "../js/words.js";

const recent = (name) => hour(name).points.slice(-60).map((p) => p[1]);

const SIGNS = { ok: "ok", warning: "warn", critical: "bad" };

function healthLine(data) {
  const tone = SIGNS[data.health];
  return h("section", { class: ["health", tone], "aria-live": "polite", "aria-label": t("health") }, h("span", { class: "sign" }, icon(tone)),
    h("div", {}, h("strong", {}, t(`health.${data.health}`)),
      data.reasons.length > 0 && h("ul", {}, data.reasons.map((r) => h("li", { key: r.code + r.subject }, said("reason", r))))));
}

export function overviewPage() {
  const answer = use(api("overview"), {}, { every: 5000, part: "overview" });
  return [
    pageHead({ title: site.clusters.clusters.find((c) => c.id === site.cluster)?.name || t("page.overview"), lead: age(answer) }),
    shown(answer, (data) => [
      healthLine(data), partial(data.answers),
      h("div", { class: "figures" },
        figure(t("in"), rate(data.in_per_s), { under: byteRate(data.in_bytes_per_s), values: recent("in_per_s") }),
        figure(t("out"), rate(data.out_per_s), { under: byteRate(data.out_bytes_per_s), values: recent("out_per_s"), tone: 3 }),
        figure(t("lag"), short(data.lag_messages), {
          under: data.lag_age_s > 10 ? t("age", { span: span(data.lag_age_s * 1000) }) : t("lag.all"), values: recent("lag_messages"), tone: 2, href: to(["consumers"], { sort: "-lag_messages" }),
        }),
        figure(t("members"), `${data.members_answering}/${data.members}`, { under: t("broker-groups", { n: data.broker_groups }), href: to(["brokers"]) }),
        figure(t("page.topics"), count(data.topics), { under: t("groups", { n: data.consumer_groups ?? 0 }), href: to(["topics"]) }),
        disk(data.disk)),
      plots(),
      h("div", { class: "columns" },
        h("div", { class: "third" }, topTopics(data)), h("div", { class: "third" }, topLags(data)),
        sheet(t("events.hour"), { class: "third" }, events(data.events, t("events.none"))))], { late: true }),
  ];
}

function disk(data) {
  if (!data) return figure(t("disk"), "–", { under: t("unknown") });
  const tone = data.used_ratio >= 0.9 ? "bad" : data.used_ratio >= 0.75 ? "warn" : "";
  return h("div", { class: "figure", key: "disk" }, h("span", { class: "name" }, t("disk.fullest")),
    h("span", { class: "number" }, data.days_left == null ? percent(data.used_ratio) : [count(Math.floor(data.days_left)), h("span", { class: "unit" }, " ", t("days-left", { n: Math.floor(data.days_left) }))]),
    h("span", {}), h("span", { class: "under" }, data.days_left == null ? bar(data.used_ratio, { tone, label: `${bytes(data.free_bytes)} ${t("free")}` }) : `${percent(data.used_ratio)} · ${bytes(data.free_bytes)} ${t("free")}`));
}

function plots() {
  const { longer } = hour("in_per_s");
  return h("div", { class: "columns", key: "plots" },
    h("div", { class: "sheet third" }, plot({ id: "rates", title: t("rates"), format: rate, series: [
      { name: t("in"), points: hour("in_per_s").points, tone: 1 }, { name: t("out"), points: hour("out_per_s").points, tone: 3 }] })),
    h("div", { class: "sheet third" }, plot({ id: "lag", title: t("lag"), format: short, series: [{ name: t("lag.messages"), points: hour("lag_messages").points, tone: 2 }],
      note: longer && h("span", { class: "faint" }, /^https?:\/\//.test(longer) ? h("a", { href: longer, rel: "noreferrer" }, t("longer")) : longer) })),
    h("div", { class: "sheet third" }, plot({ id: "put", title: t("put.p99"), format: span, factor: 60, series: [{ name: t("put.slowest"), points: hour("put_p99_ms").points, tone: 1 }] })));
}

const topTopics = (data) => h("section", { class: "sheet" }, h("header", {}, h("h2", {}, t("top.topics")), h("span", { class: "grow" }),
  data.topics_asked < data.topics && h("small", {}, t("top.asked", { asked: data.topics_asked, all: data.topics }))),
data.top_topics.length ? table({
  bare: true, id: "top-topics", label: t("top.topics"), rows: data.top_topics, rowKey: (r) => r.topic, link: (r) => to(["topics", r.topic]),
  columns: [{ key: "topic", as: topicLink }, { key: "in", of: "in_per_s", as: rate, end: true, width: 96 }],
}) : h("div", { class: "empty" }, t("top.topics.none")));

const topLags = (data) => h("section", { class: "sheet" }, h("header", {}, h("h2", {}, t("top.lags")), h("span", { class: "grow" }), link(["consumers"], t("all"), { sort: "-lag_messages" })),
  data.top_lags.length ? table({
    bare: true, id: "top-lags", label: t("top.lags"), rows: data.top_lags, rowKey: (r) => r.group, link: (r) => to(["consumers", r.group]),
    columns: [{ key: "group", as: groupLink },
      { key: "lag", title: t("lag.messages"), of: "lag_messages", as: short, end: true, width: 96 },
      { key: "ms", title: t("lag.time"), of: "lag_ms", as: span, end: true, width: 84 }],
  }) : h("div", { class: "empty" }, t("top.lags.none")));
