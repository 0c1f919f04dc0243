/** Every change goes the same way: fill in, see what would happen, confirm, see what did, item by item. */
import { ApiError, request } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { redraw, refresh } from "./live.js";
import { csv, download } from "./table.js";
import { count, t, visible } from "./words.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text"|"number"|"select"|"checkbox"|"datetime-local"|"textarea"|"password"} [type]
 * @property {any} [value]
 * @property {{value: string, label: string}[]} [options]
 * @property {string} [hint]
 * @property {boolean} [required]
 * @property {(values: object) => boolean} [when] asked only then
 *
 * @typedef {object} Change
 * @property {string} title
 * @property {string} [intro]
 * @property {Field[]} [fields]
 * @property {string} confirm what the button that does it says
 * @property {string} [typed] a name that has to be typed first: for what cannot be undone
 * @property {boolean} [danger]
 * @property {string} actions the address of the cluster's changes
 * @property {(values: any) => object} wanted what is sent, from the fields
 * @property {() => void} [done]
 * @property {string} [gone] where to go when it is done and what is shown is no more
 */

/** @type {{change: Change, step: string, values: any, seen: any, error: any, typed: string, stopping: boolean, back: any}|null} */
let asked = null;

/** @param {Change} change */
export function openChange(change) {
  const values = Object.fromEntries((change.fields || []).map((f) => [f.name, f.value ?? (f.type === "checkbox" ? false : "")]));
  asked = { change, step: change.fields?.length ? "form" : "preview", values, seen: null, error: null, typed: "", stopping: false, back: document.activeElement };
  if (asked.step === "preview") look();
  redraw();
}

export const isChanging = () => asked !== null;

async function look() {
  const mine = asked;
  Object.assign(mine, { step: "preview", seen: null, error: null });
  redraw();
  try {
    mine.seen = await request("POST", `${mine.change.actions}?limit=500`, { body: mine.change.wanted(mine.values) });
  } catch (error) {
    mine.error = error;
    if (mine.change.fields?.length) mine.step = "form";
  }
  redraw();
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function run() {
  const mine = asked;
  // A second click, or Enter on a button that is about to go, finds the step gone. The server takes
  // the same token twice as one and the same run.
  if (mine.step !== "preview" || !mine.seen) return;
  Object.assign(mine, { step: "running", error: null });
  redraw();
  const { actions } = mine.change;
  const path = `${actions}/${encodeURIComponent(mine.seen.id)}`;
  try {
    mine.seen = await request("POST", `${path}?limit=500`, { body: { token: mine.seen.token } });
    let unanswered = 0;
    while (mine.seen.state === "running") {
      await wait(400);
      try {
        mine.seen = await request("GET", `${path}?limit=500`);
        unanswered = 0;
      } catch (error) {
        // The change goes on without us; only how far it is cannot be seen for a while.
        unanswered += 1;
        if (error.status === 401 || unanswered > 20) throw error;
      }
      redraw();
    }
    // What went wrong is shown whole, wherever it stands.
    for (const state of ["unknown", "skipped", "failed"]) {
      if (mine.seen.counts[state] && mine.seen.total > mine.seen.items.length) {
        const some = await request("GET", `${path}?limit=500&state=${state}`);
        const known = new Set(some.items.map((i) => i.target));
        mine.seen.items = [...some.items, ...mine.seen.items.filter((i) => !known.has(i.target))];
      }
    }
  } catch (error) {
    mine.error = error;
  }
  mine.step = "done";
  mine.change.done?.();
  // What is gone is not asked for again: the page goes to the list.
  if (mine.change.gone && mine.seen.counts.done && !mine.seen.counts.failed) location.hash = mine.change.gone;
  else refresh();
  redraw();
}

async function stopRun() {
  const mine = asked;
  mine.stopping = true;
  redraw();
  try {
    await request("DELETE", `${mine.change.actions}/${encodeURIComponent(mine.seen.id)}`);
  } catch (error) {
    mine.error = error;
  }
  mine.stopping = false;
  redraw();
}

/** All items of a change as a file: the report. */
async function report(seen, actions) {
  const items = [];
  for (let offset = 0; offset < seen.total; offset += 1000) {
    const page = await request("GET", `${actions}/${encodeURIComponent(seen.id)}?limit=1000&offset=${offset}`);
    items.push(...page.items);
    if (!page.items.length) break;
  }
  const columns = ["target", "state", "reason", "before", "after"].map((key) => ({ key, title: key, value: (i) => i[key] }));
  download(`${seen.kind}-${seen.id}.csv`, "\ufeff" + csv(items, columns));
}

function closeChange() {
  const back = asked?.back;
  asked = null;
  redraw();
  requestAnimationFrame(() => back?.isConnected && back.focus());
}

const STEPS = ["form", "preview", "done"];

/** The dialog of the change under way, or nothing. */
export function changeDialog() {
  if (!asked) return null;
  const { change, step, values, seen, error } = asked;
  const steps = change.fields?.length ? STEPS : STEPS.slice(1);
  const at = steps.indexOf(step === "running" ? "done" : step);
  return h("dialog", {
    key: "change", class: "change", "aria-labelledby": "change-title",
    ref: (element) => element.open || element.showModal(),
    oncancel: (event) => {
      event.preventDefault();
      if (step !== "running") closeChange();
    },
  },
    h("header", {}, h("h2", { id: "change-title" }, change.title),
      h("button", { class: "quiet bare", "aria-label": t("close"), disabled: step === "running", onclick: closeChange }, icon("close"))),
    h("ol", { class: "steps", "aria-label": t("change.steps") }, steps.map((name, i) =>
      h("li", { class: i < at ? "past" : i === at ? "now" : "", "aria-current": i === at ? "step" : null }, t(`change.step.${name}`)))),
    h("div", { class: "change-body", "aria-live": "polite" },
      error && problem(error),
      step === "form" && form(change, values),
      step === "preview" && (seen ? preview(change, seen) : !error && h("p", { class: "waiting" }, t("change.looking"))),
      (step === "running" || step === "done") && seen && outcome(seen, step)),
    h("footer", {}, buttons(change, step, seen, error)));
}

export function problem(error) {
  const { field, value, limit } = error.detail || {};
  return h("div", { class: "notice bad", role: "alert" }, icon("bad"), h("div", {},
    h("strong", {}, error instanceof ApiError && error.status === 0 ? t("error.unreachable") : visible(error.message || t("error.unknown"))),
    field && h("p", {}, t("error.field", { field, value: visible(JSON.stringify(value) ?? "").slice(0, 200), limit: visible(JSON.stringify(limit ?? null)).slice(0, 200) }))));
}

function form(change, values) {
  const set = (name, value) => {
    values[name] = value;
    redraw();
  };
  return h("form", {
    id: "change-form",
    onsubmit: (event) => {
      event.preventDefault();
      look();
    },
  }, change.intro && h("p", { class: "intro" }, change.intro),
    change.fields.filter((f) => !f.when || f.when(values)).map((f) => inputField(f, values[f.name], (value) => set(f.name, value))));
}

/** One field with its label; also for forms outside of a change. */
export function inputField(field, value, set, extra = {}) {
  const id = `field-${field.name}`;
  const shared = { id, name: field.name, "aria-describedby": field.hint ? `${id}-hint` : null, required: field.required, ...extra };
  const type = field.type || "text";
  let input;
  if (type === "select") {
    input = h("select", { ...shared, value, onchange: (e) => set(e.target.value) }, field.options.map((o) => h("option", { value: o.value, key: o.value, selected: o.value === value }, o.label)));
  } else if (type === "textarea") {
    input = h("textarea", { ...shared, value, rows: 5, spellcheck: "false", oninput: (e) => set(e.target.value) });
  } else if (type === "checkbox") {
    return h("label", { class: "field tick", key: field.name }, h("input", { ...shared, type, checked: Boolean(value), onchange: (e) => set(e.target.checked) }), h("span", {}, field.label, field.hint && h("small", { id: `${id}-hint` }, field.hint)));
  } else {
    input = h("input", {
      ...shared, type, value, step: type === "datetime-local" ? 1 : type === "number" ? field.step || "any" : null, min: field.min, max: field.max,
      placeholder: field.placeholder, list: field.list, autocomplete: "off", spellcheck: "false", oninput: (e) => set(e.target.value),
    });
  }
  return h("div", { class: ["field", field.wide && "wide"], key: field.name }, h("label", { for: id }, field.label), input, field.hint && h("small", { id: `${id}-hint` }, field.hint));
}

function preview(change, seen) {
  return [
    h("p", { class: "intro" }, visible(seen.summary)),
    seen.warnings.map((text) => h("div", { class: "notice warn" }, icon("warn"), h("div", {}, visible(text)))),
    seen.total === 0 && h("div", { class: "notice warn" }, icon("warn"), h("div", {}, t("change.nothing"))),
    seen.total > 0 && itemTable(seen, t("change.will")),
    change.typed && h("div", { class: "field" }, h("label", { for: "change-typed" }, t("change.type", { name: visible(change.typed) })),
      h("input", { id: "change-typed", value: asked.typed, autocomplete: "off", spellcheck: "false", oninput: (e) => {
        asked.typed = e.target.value;
        redraw();
      } })),
  ];
}

/** How many items are in each state, in words. */
export const tally = (counts) =>
  Object.entries(counts).filter(([, n]) => n > 0).map(([state, n]) => `${count(n)} ${t(`change.${state}`)}`).join(" · ");

function outcome(seen, step) {
  const { counts, total } = seen;
  const open = (counts.waiting || 0) + (counts.will || 0);
  const bad = (counts.failed || 0) + (counts.unknown || 0);
  const tone = bad ? "bad" : counts.skipped || seen.state === "stopped" ? "warn" : "ok";
  return [
    step === "running" && h("div", { class: "progress", role: "progressbar", "aria-label": t("change.running"), "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": total - open },
      h("i", { style: { width: `${total ? (100 * (total - open)) / total : 0}%` } })),
    step === "running" ? h("p", { class: "waiting" }, t("change.running"), " ", tally(counts))
      : h("div", { class: ["notice", tone], role: "status" }, icon(tone),
        h("div", {}, h("strong", {}, seen.state === "stopped" ? t("change.stopped") : bad ? t("change.some-failed") : t("change.all-done")), h("p", {}, tally(counts)))),
    seen.items.length > 0 && itemTable(seen, t("change.result")),
  ];
}

const STATES = {
  done: ["ok", "ok"], failed: ["bad", "bad"], unknown: ["warn", "warn"], skipped: ["warn", "idle"], waiting: ["", "idle"], will: ["", "idle"],
};
const rank = (item) => ["failed", "unknown", "skipped"].indexOf(item.state) >>> 0;

function itemTable({ items, total }, label) {
  const compares = items.some((i) => i.before || i.after);
  const states = items.some((i) => i.state !== "will");
  const says = items.some((i) => i.reason);
  // What went wrong comes first.
  const list = [...items].sort((a, b) => rank(a) - rank(b)).slice(0, 500);
  return h("div", { class: "scroll capped", tabindex: "0", role: "region", "aria-label": label }, h("table", { "aria-label": label, class: "plain" },
    h("thead", {}, h("tr", {}, states && h("th", { scope: "col" }, t("change.state")), h("th", { scope: "col" }, t("change.item")),
      compares && [h("th", { scope: "col" }, t("change.before")), h("th", { scope: "col" }, t("change.after"))], says && h("th", { scope: "col" }, t("change.why")))),
    h("tbody", {}, list.map((i) => h("tr", { key: i.target },
      states && h("td", {}, h("span", { class: ["state", STATES[i.state]?.[0]] }, icon(STATES[i.state]?.[1] || "idle"), t(`change.${i.state}`))),
      h("td", { class: "wraps" }, visible(i.target)),
      compares && [h("td", { class: "wraps" }, visible(i.before)), h("td", { class: "wraps" }, visible(i.after))],
      says && h("td", { class: "wraps" }, visible(i.reason)))),
      total > list.length && h("tr", { key: ":more" }, h("td", { colspan: 5, class: "faint" }, t("change.more", { n: total - list.length }))))));
}

function buttons(change, step, seen, error) {
  const can = seen && seen.token && seen.total > 0 && (!change.typed || asked.typed === change.typed);
  if (step === "form") return [h("button", { onclick: closeChange, key: "cancel" }, t("cancel")), h("button", { class: "primary", type: "submit", form: "change-form", key: "look" }, t("change.look"))];
  if (step === "preview") {
    return [
      h("button", { onclick: closeChange, key: "cancel" }, t("cancel")),
      change.fields?.length && h("button", { key: "back", onclick: () => {
        asked.step = "form";
        redraw();
      } }, t("change.back")),
      h("button", { class: ["primary", change.danger && "danger"], key: "do", disabled: !can, onclick: run }, change.confirm),
    ];
  }
  if (step === "running") return h("button", { key: "stop", disabled: asked.stopping, onclick: stopRun }, t("stop"));
  return [
    seen?.total > 0 && !error && h("button", { key: "report", onclick: () => report(seen, change.actions) }, icon("file"), t("change.report")),
    h("button", { class: "primary", key: "close", onclick: closeChange }, t("close")),
  ];
}
