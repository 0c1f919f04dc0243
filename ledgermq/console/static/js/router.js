/** The address says all of a page's state: `#/topics/orders?sort=-in&filter=pay`.
 *
 * It stands behind `#`, so the page works below any path of a reverse proxy, and whatever serves
 * it has to know of no page.
 */

/** @returns {{path: string[], query: Record<string, string>}} */
export function readRoute(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page; parts of `query` that are empty are left out. */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== "" && value != null && value !== false) words.set(name, String(value));
  }
  const text = words.toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

/** Goes to a page, as a click on a link would. */
export function go(path, query = {}) {
  location.hash = address(path, query);
}

/** Changes parts of the query of the page that is shown. `replace`: without a step to go back to. */
export function change(parts, { replace = true } = {}) {
  const route = readRoute();
  const next = address(route.path, { ...route.query, ...parts });
  if (next === location.hash) return;
  if (replace) {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = next;
  }
}
