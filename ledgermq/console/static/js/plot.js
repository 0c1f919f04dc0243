/** Lines over time as SVG: small ones for tables, large ones with axes, a legend and a cross-hair.
 *
 * The drawing stretches to the room it gets (its lines keep their width), all text is HTML beside it.
 */
import { h } from "./dom.js";
import { redraw } from "./live.js";
import { NOTHING, moment, t } from "./words.js";

const clean = (values) => values.map((v) => (Number.isFinite(v) ? v : null));

/** Points of a drawing 100 wide and 100 high; gaps break the line. */
function linePath(points, x, y) {
  let path = "";
  let pen = "M";
  for (const [at, value] of points) {
    if (value == null) {
      pen = "M";
    } else {
      path += `${pen}${x(at).toFixed(2)} ${y(value).toFixed(2)}`;
      pen = "L";
    }
  }
  return path;
}

/** A line without axes, for a cell. The figure stands beside it as text. */
export function sparkline(values, { tone = 1 } = {}) {
  const known = clean(values || []);
  if (known.filter((v) => v != null).length < 2) return h("span", { class: "spark none", "aria-hidden": "true" });
  const top = Math.max(...known, 1e-9);
  const x = (i) => (i / (known.length - 1)) * 100;
  const y = (v) => 29 - (v / top) * 27;
  const line = linePath(known.map((v, i) => [i, v]), x, y);
  return h("svg", { class: `spark tone${tone}`, viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "area", d: `${line}L100 30L0 30Z` }), h("path", { class: "line", d: line }));
}

/** Steps of time above a second that are read as round ones, in ms. */
const TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000].map((s) => s * 1000);

/** Round steps of an axis that ends at or above `top`; factor 10, 2 for bytes, 60 for ms. */
export function steps(top, wanted = 4, factor = 10) {
  if (!(top > 0)) return [0, 1];
  if (factor === 60) return marksOf(top, (top > 1000 * wanted && TIMES.find((n) => n * wanted >= top * 0.999)) || steps(top, wanted)[1]);
  const raw = top / wanted;
  const power = factor ** Math.floor(Math.log(raw) / Math.log(factor));
  const bases = factor === 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = bases.map((n) => n * power).find((n) => n * wanted >= top * 0.999) || raw;
  return marksOf(top, step);
}

function marksOf(top, step) {
  const marks = [];
  for (let v = 0; v < top + step * 0.999; v += step) marks.push(v);
  return marks.length > 1 ? marks : [0, step];
}

const hovered = new Map();

/**
 * @param {{id: string, title: string, series: {name: string, points: [number, number|null][], tone?: number}[],
 *   format: (n: number) => string, factor?: number, note?: any}} options moments in milliseconds
 */
export function plot({ id, title, series, format, factor = 10, note }) {
  const shown = series.filter((s) => s.points.some((p) => p[1] != null));
  const times = shown.flatMap((s) => s.points.map((p) => p[0]));
  const from = Math.min(...times);
  const until = Math.max(...times);
  if (!shown.length || until <= from) {
    return h("figure", { class: "plot", key: id }, h("figcaption", {}, h("span", { class: "plot-title" }, title)),
      h("div", { class: "plot-empty" }, t("plot.empty")));
  }
  const marks = steps(Math.max(...shown.flatMap((s) => s.points.map((p) => p[1] ?? 0))), 3, factor);
  const top = marks[marks.length - 1];
  const x = (ms) => ((ms - from) / (until - from)) * 100;
  const y = (v) => 100 - (v / top) * 100;
  const longest = shown.reduce((a, b) => (b.points.length > a.points.length ? b : a)).points;
  const place = hovered.get(id);
  const at = place == null ? null : longest[Math.min(place, longest.length - 1)][0];
  const valueAt = (s) => {
    const point = at == null ? s.points[s.points.length - 1] : s.points.findLast((p) => p[0] <= at) || s.points[0];
    return point?.[1];
  };
  const move = (next) => {
    if (next === hovered.get(id)) return;
    if (next == null) hovered.delete(id);
    else hovered.set(id, Math.max(0, Math.min(longest.length - 1, next)));
    redraw();
  };
  const summary = shown.map((s) => `${s.name} ${format(valueAt(s))}`).join(", ");
  return h("figure", { class: "plot", key: id },
    h("figcaption", {}, h("span", { class: "plot-title" }, title), note,
      h("span", { class: "legend" }, shown.map((s, i) => h("span", { class: `tone${s.tone || i + 1}` }, h("i"), s.name,
        h("b", {}, valueAt(s) == null ? NOTHING : format(valueAt(s))))))),
    h("div", {
      class: "plot-field", tabindex: "0", role: "img", "aria-label": `${title}: ${summary}`,
      onpointermove: (event) => {
        const box = event.currentTarget.getBoundingClientRect();
        move(Math.round(((event.clientX - box.left) / box.width) * (longest.length - 1)));
      },
      onpointerleave: () => move(null),
      onblur: () => move(null),
      onkeydown: (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step) {
          event.preventDefault();
          move((hovered.get(id) ?? longest.length) + step);
        }
      },
    },
      marks.map((v) => h("span", { class: "mark", style: { top: `${y(v)}%` } }, h("em", {}, format(v)))),
      h("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" },
        shown.map((s, i) => h("g", { class: `tone${s.tone || i + 1}` },
          shown.length === 1 && h("path", { class: "area", d: `${linePath(s.points, x, y)}L100 100L0 100Z` }),
          h("path", { class: "line", d: linePath(s.points, x, y) })))),
      at != null && h("span", { class: "hair", style: { left: `${x(at)}%` } }, h("em", { class: x(at) > 70 ? "left" : "" }, moment(at)))),
    h("div", { class: "plot-times", "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((f) => h("span", {}, moment(from + (until - from) * f).slice(-8, -3)))));
}

/** A share as a bar, with its figure as text. */
export function bar(share, { tone = "", label = "" } = {}) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return h("span", { class: ["bar", tone] }, h("i", { style: { width: `${width.toFixed(1)}%` } }), h("span", {}, label));
}
