/** Dead letters: which groups have some, why, and sending them anew at a rate, with a report. */
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { redraw, use } from "../js/live.js";
import { age, api, doing, empty, failed, link, mark, mayChange, pageHead, partial, shown, to, topicLink } from "../js/parts.js";
import { change } from "../js/router.js";
import { serverTable, table } from "../js/table.js";
import { ago, moment, t, visible } from "../js/words.js";
import { messageAddress } from "./messages.js";

export function deadPage() {
  const { view, first } = serverTable({
    id: "dead", path: api("dead-letters"), label: t("page.dead"), rowKey: (r) => r.group, link: (r) => to(["dead", r.group]), sort: "-messages", failed,
    empty: empty(t("dead.none"), t("dead.none.text"), "ok"),
    columns: [
      { key: "name", title: t("group"), of: "group", cell: (r) => link(["dead", r.group], r.group, {}, { class: "name" }) }, { key: "messages", title: t("page.dead"), end: true, width: 150 },
      { key: "oldest", of: "oldest_ms", as: ago, end: true, width: 150, fixed: true }, { key: "newest", of: "newest_ms", as: ago, end: true, width: 150 },
      { key: "readable", title: t("state"), value: (r) => (r.readable ? "" : t("dead.unreadable")), cell: (r) => (r.readable ? mark("", t("dead.readable")) : mark("warn", t("dead.unreadable"), t("dead.unreadable.text"))), width: 160, fixed: true }],
  });
  return [pageHead({ title: t("page.dead"), lead: [first.data && t("dead.all", { n: first.data.messages }), " ", age(first)] }), partial(first.data?.answers), view];
}

/** Chosen letters of the group that is looked at, over all its pages: key -> place. */
let chosen = { group: "", places: new Map() };

export function deadLettersPage([group], query) {
  if (chosen.group !== group) chosen = { group, places: new Map() };
  const limit = 50;
  const answer = use(api("dead-letters", group, "messages"), { cursor: query.cursor, limit, columns: "state" });
  const key = (r) => `${r.broker} ${r.queue} ${r.offset}`;
  const selected = new Set(chosen.places.keys());
  const rows = answer.data?.rows || [];
  const byKey = new Map(rows.map((r) => [key(r), r]));
  const picks = {
    has: (k) => selected.has(k), add: (k) => byKey.has(k) && chosen.places.set(k, { broker: byKey.get(k).broker, queue: byKey.get(k).queue, offset: byKey.get(k).offset }), delete: (k) => chosen.places.delete(k),
  };
  return [
    pageHead({
      title: group, crumb: link(["dead"], t("page.dead")), lead: [answer.data && t("dead.letters", { n: answer.data.total, waiting: answer.data.waiting_max }), " ", age(answer)],
      actions: [link(["consumers", group], t("group"), {}, { class: "button" }), mayChange() && answer.data?.total > 0 && ["drop", "resend"].map((verb) => h("button", { key: verb, class: verb === "resend" && "primary", onclick: () => work(group, verb) }, chosen.places.size ? t(`do.${verb}.chosen`, { n: chosen.places.size }) : t(`do.${verb}.all`)))],
    }),
    shown(answer, (data) => table({
      id: "letters", main: true, label: t("dead.letters.label"), rows, total: data.total, rowKey: key, link: messageAddress, selected: picks,
      empty: empty(t("dead.empty"), t("dead.empty.text"), "ok"),
      tools: chosen.places.size > 0 && h("button", { class: "quiet", onclick: () => {
        chosen.places.clear();
        redraw();
      } }, icon("close"), t("chosen", { n: chosen.places.size })),
      below: (data.next || query.cursor) && h("div", { class: "pages" }, query.cursor && h("button", { class: "small", onclick: () => change({ cursor: "" }, { replace: false }) }, t("newest.first")), h("span", { class: "grow" }), data.next && h("button", { class: "small", onclick: () => change({ cursor: data.next }, { replace: false }) }, t("older"))),
      columns: [
        { key: "id", title: t("message-id"), of: "message_id", cell: (r) => h("a", { class: "mono", href: messageAddress(r) }, visible(r.message_id)), width: 257 },
        { key: "state", value: (r) => (r.state ? t(`letter.${r.state}`) : null), cell: (r) => (r.state ? mark(r.state === "resent" ? "ok" : "", t(`letter.${r.state}`)) : "–"), width: 118 },
        { key: "stored", title: t("dead.since"), of: "stored_ms", as: moment, end: true, width: 148 }, { key: "origin", of: "origin_topic", cell: (r) => (r.origin_topic ? topicLink(r.origin_topic) : "–"), width: 128 },
        { key: "times", title: t("reconsumed"), of: "reconsume_times", end: true, width: 78, hint: t("reconsumed.hint") }, { key: "keys", title: t("field.keys"), width: 84 }, { key: "tags", title: t("field.tags"), width: 66 },
        { key: "preview", title: t("body"), cell: (r) => h("span", { class: "mono soft" }, visible(r.preview)) }],
    })),
  ];
}

/** Sends letters anew or drops them: those chosen, or all that fit. */
function work(group, verb) {
  const places = [...chosen.places.values()];
  const some = places.length > 0;
  const drops = verb === "drop";
  const time = (text) => (text ? new Date(text).getTime() : null);
  doing({
    title: some ? t(`do.${verb}.chosen`, { n: places.length }) : t(`do.${verb}.all.of`, { name: visible(group) }), confirm: t(`do.${verb}`), intro: t(`do.${verb}.text`), danger: drops,
    fields: [
      ...(drops ? [] : [{ name: "per_s", label: t("do.resend.rate"), type: "number", value: 100, min: 0.1, max: 10000, required: true, hint: t("do.resend.rate.hint") }]),
      { name: "count_max", label: t("do.resend.max"), type: "number", value: some ? places.length : 10000, min: 1, max: 100000, step: 1, required: true },
      ...(some ? [] : [{ name: "begin", label: t("search.begin"), type: "datetime-local" }, { name: "end", label: t("search.end"), type: "datetime-local" }, { name: "tag", label: t("field.tags") }, { name: "text", label: t("search.text") }])],
    wanted: (v) => ({ kind: `${verb}_dead_letters`, group, messages: places, begin_ms: time(v.begin), end_ms: time(v.end), tag: v.tag || "", text: v.text || "", per_s: Number(v.per_s || 1000), count_max: Number(v.count_max) }),
    done: () => chosen.places.clear(),
  });
}
