/** Dead letters: which groups have some, why, and sending them anew at a rate, with a report. */
import { openChange } from "../js/change.js";
import { h } from "../js/dom.js";
import { icon } from "../js/icons.js";
import { redraw, use } from "../js/live.js";
import { age, api, empty, failed, link, mark, mayChange, pageHead, partial, shown, to, topicLink } from "../js/parts.js";
import { change } from "../js/router.js";
import { serverTable, table } from "../js/table.js";
import { ago, bytes, moment, t, visible } from "../js/words.js";
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
  const limit = 100;
  const answer = use(api("dead-letters", group, "messages"), { cursor: query.cursor, limit });
  const key = (r) => `${r.broker} ${r.queue} ${r.offset}`;
  const selected = new Set(chosen.places.keys());
  const rows = answer.data?.rows || [];
  const byKey = new Map(rows.map((r) => [key(r), r]));
  const picks = {
    has: (k) => selected.has(k), add: (k) => byKey.has(k) && chosen.places.set(k, { broker: byKey.get(k).broker, queue: byKey.get(k).queue, offset: byKey.get(k).offset }), delete: (k) => chosen.places.delete(k),
  };
  return [
    pageHead({
      title: group, crumb: link(["dead"], t("page.dead")), lead: [answer.data && t("dead.letters", { n: answer.data.total }), " ", age(answer)],
      actions: [link(["consumers", group], t("group"), {}, { class: "button" }), mayChange() && answer.data?.total > 0 && h("button", { class: "primary", onclick: () => resend(group) }, chosen.places.size ? t("do.resend.chosen", { n: chosen.places.size }) : t("do.resend.all"))],
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
        { key: "id", title: t("message-id"), of: "message_id", cell: (r) => h("a", { class: "mono", href: messageAddress(r) }, visible(r.message_id)), width: 262 },
        { key: "stored", title: t("dead.since"), of: "stored_ms", as: moment, end: true, width: 148 }, { key: "origin", of: "origin_topic", cell: (r) => (r.origin_topic ? topicLink(r.origin_topic) : "–"), width: 140 },
        { key: "times", title: t("reconsumed"), of: "reconsume_times", end: true, width: 72, hint: t("reconsumed.hint") }, { key: "keys", title: t("field.keys"), width: 100 }, { key: "tags", title: t("field.tags"), width: 80 },
        { key: "size", of: "body_bytes", as: bytes, end: true, width: 76 }, { key: "preview", title: t("body"), cell: (r) => h("span", { class: "mono soft" }, visible(r.preview)) }],
    })),
  ];
}

function resend(group) {
  const places = [...chosen.places.values()];
  const some = places.length > 0;
  openChange({
    actions: api("actions"), title: some ? t("do.resend.chosen", { n: places.length }) : t("do.resend.all.of", { name: visible(group) }), confirm: t("do.resend"), intro: t("do.resend.text"),
    fields: [
      { name: "per_s", label: t("do.resend.rate"), type: "number", value: 100, min: 0.1, max: 10000, required: true, hint: t("do.resend.rate.hint") }, { name: "count_max", label: t("do.resend.max"), type: "number", value: some ? places.length : 10000, min: 1, max: 100000, step: 1, required: true },
      ...(some ? [] : [{ name: "begin", label: t("search.begin"), type: "datetime-local" }, { name: "end", label: t("search.end"), type: "datetime-local" }, { name: "tag", label: t("field.tags") }, { name: "text", label: t("search.text") }])],
    wanted: (v) => ({
      kind: "resend_dead_letters", group, messages: places, begin_ms: v.begin ? new Date(v.begin).getTime() : null, end_ms: v.end ? new Date(v.end).getTime() : null, tag: v.tag || "", text: v.text || "", per_s: Number(v.per_s), count_max: Number(v.count_max),
    }),
    done: () => chosen.places.clear(),
  });
}
