/** Figures of the last hour, kept by the page: the server tells them once, then what is new. */
import { redraw, use } from "./live.js";
import { api, site } from "./parts.js";

/** Figures of the last hour: asked once, then the stream brings what is new. */
let kept = { cluster: "", series: new Map() };

/** Adds points that are newer than those known. */
export function recordHistory(history) {
  if (kept.cluster !== site.cluster) kept = { cluster: site.cluster, series: new Map() };
  for (const { name, member, at_ms: moments, values } of history.series) {
    if (member) continue;
    const known = kept.series.get(name) || { points: [] };
    const last = known.points.at(-1)?.[0] ?? 0;
    const fresh = moments.map((at, i) => [at, values[i]]).filter(([at]) => at > last);
    const oldest = (fresh.at(-1)?.[0] ?? last) - 3_600_000;
    known.points = [...known.points, ...fresh].filter(([at]) => at >= oldest);
    kept.series.set(name, known);
  }
  redraw();
}

let taken = null;

/** The points of a figure of the whole cluster. */
export function hour(name) {
  const first = use(api("history"), {}, { every: 60_000, part: "history" });
  if (first.data && first.data !== taken) {
    taken = first.data;
    recordHistory(first.data);
  }
  return { points: kept.cluster === site.cluster ? kept.series.get(name)?.points || [] : [], longer: first.data?.longer || "" };
}
