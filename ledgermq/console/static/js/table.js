/** Tables: sorted and filtered by the address, drawn only where they are seen, walked by keys.
 *
 * A table is a scroller of its own with a head that stays. Of thousands of rows only those in sight
 * are elements; the rest is the height of two empty rows.
 */
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { queryOf, request } from "./api.js";
import { redraw, use } from "./live.js";
import { change, readRoute } from "./router.js";
import { count, keep, t, visible } from "./words.js";

const ROW = 34;
/** Rows drawn beyond what is seen, above and below. */
const MARGIN = 12;

/** Where each table stands: scroll position, height, row that the keys are on. */
const places = new Map();

const placeOf = (id) => {
  if (!places.has(id)) places.set(id, { top: 0, height: 600, row: 0, hidden: new Set(keep(`columns.${id}`).split(",").filter(Boolean)) });
  return places.get(id);
};

/**
 * @typedef {object} Column
 * @property {string} key stands in the address as the sort
 * @property {string} [title] the text of that key if absent
 * @property {(row: any) => any} [value] what sorts, filters and is exported
 * @property {string} [of] instead of `value`: the field of the row, if it is not named as the key
 * @property {(row: any) => any} [cell] what is shown, `value` as text if absent
 * @property {(value: any) => any} [as] instead of `cell`: how the value is shown
 * @property {boolean} [end] figures stand at the right
 * @property {number|string} [width] in pixels, or in CSS
 * @property {boolean} [fixed] has no sort
 * @property {string} [hint] explains the head
 */

/** Columns with all that they leave out. @param {Column[]} columns */
const whole = (columns) => columns.map((column) => {
  const { key, of = key, as } = column;
  const value = column.value || ((row) => row[of]);
  const { title = t(key), cell = as && ((row) => as(value(row))), width } = column;
  return { ...column, value, title, cell, width: typeof width === "number" ? `${width}px` : width };
});

/** Compares two values of a column: numbers by size, texts as people sort, nothing last. */
export function compare(a, b) {
  if (a == null || b == null) return a == null ? (b == null ? 0 : 1) : -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** Rows in the order that the address names, `-key` being the largest first. */
export function sorted(rows, columns, sort) {
  const down = sort.startsWith("-");
  const column = columns.find((c) => c.key === sort.replace(/^-/, ""));
  if (!column) return rows;
  return [...rows].sort((x, y) => {
    const a = column.value(x);
    const b = column.value(y);
    return down && a != null && b != null ? compare(b, a) : compare(a, b);
  });
}

/** The rows in which each word of the filter stands in some column. */
export function filtered(rows, columns, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return rows;
  return rows.filter((row) => {
    const text = columns.map((c) => c.value(row)).filter((v) => typeof v === "string").join("\n").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

/** Rows as CSV. A text that a spreadsheet would run as a formula is kept a text. */
export function csv(rows, columns) {
  const field = (value) => {
    let text = value == null ? "" : String(value);
    // Behind any separator that it may take for one: `;` in half of Europe.
    if (typeof value !== "number") text = text.replace(/(^|[;\t\r\n])(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/g, "$1'");
    return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map((c) => field(c.title)), ...rows.map((row) => columns.map((c) => field(c.value(row))))]
    .map((fields) => fields.join(","))
    .join("\r\n");
}

export function download(name, text, type = "text/csv;charset=utf-8") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Rows that are all here.
 * @param {object} options
 * @param {string} options.id names the table in the address (`name.sort`) unless `main`
 * @param {Column[]} options.columns
 * @param {any[]} options.rows
 * @param {(row: any) => string} options.rowKey
 * @param {(row: any) => string} [options.link] where Enter on a row goes
 * @param {string} [options.sort] the sort while the address names none
 * @param {boolean} [options.main] the page's own table: takes the room that is left, has the filter
 * @param {Set<string>} [options.selected] keys of rows chosen; gives each row a box
 * @param {any} [options.tools] more in the bar above
 * @param {any} [options.empty] shown when there are no rows at all
 * @param {boolean} [options.bare] without a sheet around it
 * @param {any} [options.below]
 * @param {string} options.label
 */
export function table(options) {
  const { id, rows, rowKey, main = false, label } = options;
  const columns = whole(options.columns);
  const place = placeOf(id);
  const { query } = readRoute();
  const sortName = main ? "sort" : `${id}.sort`;
  const sort = query[sortName] ?? options.sort ?? "";
  const words = main ? query.q || "" : "";
  const matching = sorted(filtered(rows, columns, words), columns, sort);
  const bar = (main || options.tools) && h("div", { class: "tools" },
    main && filterField(words, label), options.filters,
    h("span", { class: "tally", role: "status" }, words
      ? t("table.matching", { n: matching.length, all: rows.length }) : t("table.rows", { n: options.total ?? rows.length })),
    h("span", { class: "grow" }), options.tools,
    main && columnMenu(id, columns, place),
    main && csvButton(matching.length === 0, async () => download(`${id}.csv`, "\ufeff" + csv(matching, columns))));
  const body = !rows.length && options.empty ? options.empty
    : grid({ ...options, columns, total: matching.length, at: (i) => matching[i], keys: () => matching.map(rowKey), sort, sortName, place });
  // Inside of a sheet that is there already.
  if (options.bare) return body;
  return h("section", { class: ["sheet", main && "fill"], key: id }, bar, body, options.below);
}

/** Rows of one request. */
const PAGE = 50;

/**
 * Rows that the server sorts and filters; only what is in sight is asked for.
 *
 * Takes the options of `table`, and `path`, `params`, `part` of the event stream. The key of a
 * column is the server's name of the sort; columns with `fixed` have none.
 * @returns {{view: any, first: object}} what is shown, and the answer of the first rows in sight
 */
export function serverTable(options) {
  const { id, path, params = {}, label, part } = options;
  const columns = whole(options.columns);
  const place = placeOf(id);
  const { query } = readRoute();
  const words = query.q || "";
  const sort = query.sort ?? options.sort ?? "";
  const asked = { ...params, filter: words, sort: sort.replace(/^-/, ""), order: sort.startsWith("-") ? "desc" : "asc", limit: PAGE };
  const [from, until] = inSight(place);
  const pages = new Map();
  const take = (page, first) => pages.set(page, use(path, { ...asked, offset: page * PAGE || "" }, { every: 15_000, part: first ? part : undefined }));
  const firstPage = Math.floor(from / PAGE);
  const settled = placeTotals.get(`${id} ${JSON.stringify(asked)}`);
  const lastPage = settled === undefined ? firstPage : Math.max(firstPage, Math.floor((Math.min(until, settled) - 1) / PAGE));
  for (let page = firstPage; page <= lastPage; page++) take(page, page === firstPage);
  const first = pages.get(firstPage);
  const total = first.data?.total ?? settled ?? 0;
  placeTotals.set(`${id} ${JSON.stringify(asked)}`, first.data ? total : settled);
  const at = (i) => pages.get(Math.floor(i / PAGE))?.data?.rows[i % PAGE];
  const bar = h("div", { class: "tools" }, filterField(words, label), options.filters,
    h("span", { class: "tally", role: "status" }, first.data ? t(words ? "table.found" : "table.rows", { n: total }) : t("loading")),
    h("span", { class: "grow" }), options.tools, columnMenu(id, columns, place),
    csvButton(!total, () => exportAll(id, path, asked, columns)));
  let body;
  if (!first.data) body = first.error ? options.failed(first) : waiting();
  else if (!total && !words && options.empty) body = options.empty;
  else body = grid({ ...options, columns, main: true, total, at, sort, sortName: "sort", place });
  return { view: h("section", { class: ["sheet", "fill"], key: id }, bar, body), first };
}

const placeTotals = new Map();

export const waiting = () => h("div", { class: "loading", role: "status", "aria-label": t("loading") },
  [62, 48, 71, 55, 66, 43].map((width) => h("i", { style: { width: `${width}%` } })));

let exporting = "";

function csvButton(disabled, run) {
  return h("button", {
    class: "quiet", title: t("table.csv.hint"), disabled: disabled || exporting !== "",
    onclick: async () => {
      exporting = t("table.csv.busy", { n: 0 });
      redraw();
      try {
        await run();
      } catch (error) {
        failure = error;
      }
      exporting = "";
      redraw();
    },
  }, icon("file"), exporting || (failure ? t("table.csv.failed") : "CSV"));
}

/** Why the last export came to nothing. */
let failure = null;

async function exportAll(id, path, asked, columns) {
  const rows = [];
  failure = null;
  for (let offset = 0, total = 1; offset < total; offset += 200) {
    const page = await request("GET", `${path}?${queryOf({ ...asked, offset, limit: 200 })}`);
    rows.push(...page.rows);
    total = page.total;
    exporting = t("table.csv.busy", { n: rows.length });
    redraw();
    if (!page.rows.length) break;
  }
  download(`${id}.csv`, "\ufeff" + csv(rows, columns));
}

/** The first row to draw and the first that is not. */
const inSight = (place) => [
  Math.max(0, Math.floor(place.top / ROW) - MARGIN), Math.ceil((place.top + place.height) / ROW) + MARGIN,
];

function filterField(words, label) {
  return h("label", { class: "find" }, icon("search"),
    h("input", {
      type: "search", id: "filter", value: words, placeholder: t("table.filter"), "aria-label": `${t("table.filter")}: ${label}`,
      autocomplete: "off", spellcheck: "false", oninput: (event) => change({ q: event.target.value }),
      onkeydown: (event) => {
        if (event.key === "Escape") {
          event.target.value ? change({ q: "" }) : event.target.blur();
          event.stopPropagation();
        }
      },
    }), h("kbd", { "aria-hidden": "true" }, "/"));
}

function columnMenu(id, columns, place) {
  return h("details", { class: "menu", onkeydown: closeOnEscape }, h("summary", { class: "button quiet" }, icon("columns"), t("table.columns")),
    h("div", { class: "menu-body" }, columns.map((column, i) => h("label", {},
      h("input", {
        type: "checkbox", checked: !place.hidden.has(column.key), disabled: i === 0,
        onchange: (event) => {
          event.target.checked ? place.hidden.delete(column.key) : place.hidden.add(column.key);
          keep(`columns.${id}`, [...place.hidden].join(","));
          redraw();
        },
      }), column.title))));
}

function closeOnEscape(event) {
  if (event.key === "Escape" && event.currentTarget.open) {
    event.currentTarget.open = false;
    event.currentTarget.querySelector("summary").focus();
    event.stopPropagation();
  }
}

function grid(options) {
  const { id, total, at, place, main, selected, label, columns } = options;
  const shown = columns.filter((c) => !place.hidden.has(c.key));
  place.row = Math.min(place.row, Math.max(0, total - 1));
  const isLong = total > 60;
  const [from, until] = isLong ? inSight(place) : [0, total];
  const last = Math.min(total, until);
  const first = Math.min(from, last);
  const width = shown.length + (selected ? 1 : 0);
  // A column without a width takes what is left, and needs some.
  const least = shown.reduce((sum, c) => sum + (c.width ? parseInt(c.width, 10) : 140), selected ? 36 : 0);
  const gap = (n, key) => n > 0 && h("tr", { key, "aria-hidden": "true", class: "gap", style: { height: `${n * ROW}px` } }, h("td", { colspan: width }));
  const lines = [];
  for (let i = first; i < last; i++) lines.push(line(at(i), i, shown, options));
  return h("div", {
    class: ["scroll", isLong && !main && "capped"], ref: (element) => settle(element, place), "data-table": id,
    onscroll: (event) => {
      place.top = event.currentTarget.scrollTop;
      if (isLong) redraw();
    },
    onkeydown: (event) => walk(event, options),
  },
    h("table", { "aria-label": label, "aria-rowcount": total + 1, class: [columns.length > 7 && "wide", !main && !isLong && "short"], style: !options.bare && least > 860 ? { "min-width": `${least}px` } : {} },
      h("colgroup", {}, selected && h("col", { key: ":choose", style: { width: "36px" } }),
        shown.map((c) => h("col", { key: c.key, style: c.width ? { width: c.width } : {} }))),
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, selected && chooseAll(options), shown.map((c) => head(c, options)))),
      h("tbody", {}, gap(first, ":above"), lines, gap(total - last, ":below"),
        !total && h("tr", { class: "nothing", key: ":none" }, h("td", { colspan: width }, t("table.none"))))));
}

function settle(element, place) {
  if (element.clientHeight && element.clientHeight !== place.height) {
    place.height = element.clientHeight;
    redraw();
  }
  if (element.scrollTop !== place.top) {
    // The browser has the last word where the rows have become fewer.
    if (place.top && element.scrollTop === 0 && !element.dataset.met) element.scrollTop = place.top;
    place.top = element.scrollTop;
  }
  element.dataset.met = "1";
  // A row that the keys went to may have to be fetched first.
  const row = place.goal != null && element.querySelector(`tr[data-row="${place.goal}"]`);
  if (row) {
    place.goal = null;
    row.focus({ preventScroll: true });
  }
}

function head(column, { sort, sortName }) {
  const active = sort.replace(/^-/, "") === column.key;
  const down = sort.startsWith("-");
  if (column.fixed) return h("th", { key: column.key, scope: "col", class: column.end && "end", title: column.hint }, column.title);
  return h("th", {
    key: column.key, scope: "col", class: column.end && "end", "aria-sort": active ? (down ? "descending" : "ascending") : null,
  }, h("button", {
    title: column.hint,
    // Figures are looked at from the largest, names from the first.
    onclick: () => change({ [sortName]: active ? (down ? column.key : `-${column.key}`) : column.end ? `-${column.key}` : column.key }),
  }, h("span", {}, column.title), active && icon(down ? "down" : "up")));
}

function chooseAll({ keys: all, selected, onSelect }) {
  const keys = all();
  const every = keys.length > 0 && keys.every((key) => selected.has(key));
  return h("th", { scope: "col", class: "choose", key: ":choose" }, h("input", {
    type: "checkbox", checked: every, indeterminate: !every && keys.some((key) => selected.has(key)), "aria-label": t("table.all"),
    onchange: () => {
      keys.forEach((key) => (every ? selected.delete(key) : selected.add(key)));
      onSelect?.();
      redraw();
    },
  }));
}

/** Of a table, Tab stops at one row and what is in it; from row to row go other keys. */
function passed(node) {
  if (Array.isArray(node)) return node.map(passed);
  if (!node || typeof node !== "object") return node;
  const stops = node.tag === "a" || node.tag === "button" || node.tag === "input";
  return { ...node, props: stops ? { ...node.props, tabindex: "-1" } : node.props, kids: node.kids.map(passed) };
}

function line(row, index, shown, { rowKey, place, selected, onSelect, tone }) {
  if (!row) return h("tr", { key: `:wait${index}`, class: "wait", "aria-rowindex": index + 2 }, shown.map((c) => h("td", { key: c.key }, h("i"))));
  const key = rowKey(row);
  const chosen = selected?.has(key);
  return h("tr", {
    key, tabindex: index === place.row ? "0" : "-1", "aria-rowindex": index + 2, "data-row": index,
    class: [chosen && "chosen", tone?.(row)], "aria-selected": selected ? String(Boolean(chosen)) : null,
    onfocus: () => {
      place.row = index;
    },
  },
    selected && h("td", { class: "choose", key: ":choose" }, h("input", {
      type: "checkbox", checked: chosen, "aria-label": t("table.choose", { name: visible(key) }), tabindex: index === place.row ? null : "-1",
      onchange: () => {
        chosen ? selected.delete(key) : selected.add(key);
        onSelect?.();
        redraw();
      },
    })),
    shown.map((c) => {
      const value = c.cell ? c.cell(row) : c.value(row);
      const plain = value == null || typeof value !== "object";
      const parts = plain || index === place.row ? value : passed(value);
      const text = plain ? (typeof value === "number" ? count(value) : value == null ? "–" : visible(value)) : parts;
      return h("td", { key: c.key, class: [c.end && "end", c.mono && "mono"], title: plain && typeof value === "string" && value.length > 12 ? text : null }, text);
    }));
}

/** j k and arrows go from row to row, Enter opens, x chooses. */
function walk(event, { total, at, place, link, rowKey, selected, onSelect }) {
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const page = Math.max(1, Math.floor(place.height / ROW) - 2);
  const to = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  const isRow = event.target.closest("tbody tr");
  if (to !== undefined && isRow) {
    event.preventDefault();
    place.row = Math.max(0, Math.min(total - 1, place.row + to));
    focusRow(event.currentTarget, place);
  } else if (event.key === "Enter" && event.target.tagName === "TR" && link) {
    const row = at(place.row);
    const address = row && link(row);
    if (address) location.hash = address;
  } else if (event.key === "x" && selected && isRow) {
    const key = rowKey(at(place.row));
    selected.has(key) ? selected.delete(key) : selected.add(key);
    onSelect?.();
    redraw();
  }
}

function focusRow(scroller, place) {
  const head = ROW;
  const y = place.row * ROW;
  if (y < scroller.scrollTop) scroller.scrollTop = y;
  else if (y + ROW + head > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y + ROW + head - scroller.clientHeight;
  place.top = scroller.scrollTop;
  place.goal = place.row;
  redraw();
}

/** From outside of any table: j goes into the page's first. */
export function enterTable() {
  const row = document.querySelector('.scroll tbody tr[tabindex="0"]') || document.querySelector(".scroll tbody tr[tabindex]");
  row?.focus();
  return Boolean(row);
}
