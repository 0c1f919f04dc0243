/** Values become elements: a small tree of plain objects, compared with the one before.
 *
 * `h` describes an element, `render` makes the page look like the description. Text becomes text
 * nodes and attributes are set by name: nothing here parses markup, so a message body or a topic's
 * name can never become an element. Elements are kept while their key (or their place and tag) stays
 * the same, so focus, selection and scroll positions survive an update.
 */

const SVG = "http://www.w3.org/2000/svg";
/** Set as properties: as attributes they would only be what a field starts with. */
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "indeterminate", "scrollTop"]);
/** Whom to tell of their elements, once all of them stand in the page. */
const refs = [];
/** What an element was last made from. */
const made = new WeakMap();

/**
 * @param {string|Function} tag name of an element, or a function of (props, children)
 * @param {object|null} props attributes; `on…` are listeners, `class` may be a list, `style` an
 *   object, `key` names the element among its siblings, `ref` is called with the element after each
 *   update, `gone` when it leaves
 * @param {...any} children elements, texts, numbers, lists of them; null and false are nothing
 */
export function h(tag, props, ...children) {
  const given = props || {};
  const kids = children.flat(Infinity).filter((kid) => kid != null && kid !== false && kid !== true);
  if (typeof tag === "function") return tag(given, kids);
  return { tag, props: given, kids, key: given.key };
}

/** Makes `parent` hold what `nodes` describe, and nothing else. */
export function render(parent, nodes) {
  children(parent, Array.isArray(nodes) ? nodes.flat(Infinity).filter((n) => n != null && n !== false) : [nodes],
    parent.namespaceURI === SVG);
  for (const [ref, dom] of refs.splice(0)) ref(dom);
}

const isText = (node) => typeof node !== "object";
const same = (dom, node) => {
  if (isText(node)) return dom.nodeType === 3;
  const old = made.get(dom);
  return old !== undefined && old.tag === node.tag && old.key === node.key;
};

function create(node, svg) {
  if (isText(node)) return document.createTextNode(String(node));
  const inSvg = svg || node.tag === "svg";
  const dom = inSvg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  update(dom, { tag: node.tag, props: {}, kids: [] }, node, inSvg);
  return dom;
}

function update(dom, old, node, svg) {
  made.set(dom, node);
  for (const name in old.props) if (!(name in node.props)) set(dom, name, null, old.props[name]);
  children(dom, node.kids, svg);
  // After the children: a select takes its value only when the option is there.
  for (const name in node.props) set(dom, name, node.props[name], old.props[name]);
  if (node.props.ref) refs.push([node.props.ref, dom]);
}

function patch(dom, node, svg) {
  if (isText(node)) {
    if (dom.nodeValue !== String(node)) dom.nodeValue = String(node);
  } else {
    const old = made.get(dom);
    if (old !== node) update(dom, old, node, svg || node.tag === "svg");
  }
}

function children(parent, nodes, svg) {
  const keyed = new Map();
  for (const dom of parent.childNodes) {
    const key = made.get(dom)?.key;
    if (key !== undefined) keyed.set(key, dom);
  }
  const free = [...parent.childNodes].filter((dom) => made.get(dom)?.key === undefined);
  let at = 0;
  const chosen = nodes.map((node) => {
    const key = isText(node) ? undefined : node.key;
    if (key !== undefined) {
      const dom = keyed.get(key);
      return dom && same(dom, node) ? dom : null;
    }
    // The next of its kind: what stands before it has gone.
    for (let i = at; i < free.length; i++) {
      if (same(free[i], node)) {
        at = i + 1;
        return free[i];
      }
    }
    return null;
  });
  const kept = new Set(chosen);
  for (const dom of [...parent.childNodes]) {
    if (!kept.has(dom)) {
      leave(dom);
      parent.removeChild(dom);
    }
  }
  nodes.forEach((node, i) => {
    const dom = chosen[i] || create(node, svg);
    if (chosen[i]) patch(dom, node, svg);
    if (parent.childNodes[i] !== dom) parent.insertBefore(dom, parent.childNodes[i] || null);
  });
}

function leave(dom) {
  made.get(dom)?.props.gone?.(dom);
  for (const child of dom.childNodes) leave(child);
}

function set(dom, name, value, old) {
  if (name === "key" || name === "ref" || name === "gone") return;
  if (name.startsWith("on")) dom[name] = value;
  else if (PROPERTIES.has(name)) {
    if (dom[name] !== value) dom[name] = value ?? "";
  } else if (name === "style") {
    for (const key in old || {}) if (!value || !(key in value)) dom.style.removeProperty(key);
    for (const key in value || {}) dom.style.setProperty(key, value[key]);
  } else {
    const text = Array.isArray(value) ? value.filter(Boolean).join(" ") : value;
    if (text == null || text === false) dom.removeAttribute(name);
    else if (dom.getAttribute(name) !== String(text)) dom.setAttribute(name, text === true ? "" : text);
  }
}
