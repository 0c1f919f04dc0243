/** Drawn for a field of 16 by 16, in lines of the text's colour. */
import { h } from "./dom.js";

const PATHS = {
  overview: "M2 9.5a6 6 0 1 1 12 0M8 9.5l2.6-3M4.2 13h7.6",
  brokers: "M2.5 2.5h11v4.4h-11zM2.5 9.1h11v4.4h-11zM5 4.7h.01M5 11.3h.01M8 4.7h3M8 11.3h3",
  topics: "M2.5 3.5h11M2.5 8h11M2.5 12.5h11M5.5 2v3M10.5 6.5v3M7 11v3",
  consumers: "M6 7.2a2.4 2.4 0 1 0 0-4.8 2.4 2.4 0 0 0 0 4.8zM1.8 13.4c.3-2.6 1.9-4 4.2-4s3.9 1.4 4.2 4M11 7.3a2 2 0 1 0-.7-3.9M11.8 9.6c1.5.4 2.3 1.7 2.5 3.6",
  messages: "M2.2 3.5h11.6v9H2.2zM2.5 4l5.5 4.7L13.5 4",
  dead: "M3 5.5h10v7.8H3zM2.2 2.7h11.6v2.8H2.2zM6.3 8l3.4 3M9.7 8l-3.4 3",
  clients: "M1.8 3h8.4v6.4H1.8zM4 12.6h4M6 9.4v3.2M11.5 6h2.7v7h-4.2v-1.5",
  admin: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.3 5.3 0 1 0 6.6 6.6z",
  auto: "M8 2.2a5.8 5.8 0 1 0 0 11.6zM8 2.2a5.8 5.8 0 0 1 0 11.6",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM10.7 10.7L14 14",
  up: "M4.5 9.5L8 6l3.5 3.5",
  down: "M4.5 6.5L8 10l3.5-3.5",
  file: "M8 2.5v7.5M5 7.3L8 10.3l3-3M2.8 13.3h10.4",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  ok: "M3.5 8.5l3 3 6-7",
  warn: "M8 2.6l6 10.6H2zM8 6.5v3.2M8 11.6v.01",
  bad: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 5v3.6M8 10.9v.01",
  idle: "M4 8h8",
  key: "M5.2 8.2a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4zM7.2 8.9l5.8-6.2M10.8 5l1.7 1.6",
  leave: "M6.5 2.5h-4v11h4M9.5 5l3 3-3 3M12.2 8H6",
};

/** @param {keyof typeof PATHS} name */
export const icon = (name) =>
  h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, h("path", { d: PATHS[name] }));
