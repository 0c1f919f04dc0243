/** The frame around all pages: rail, cluster, theme, language, keys, sign-in; and what draws it. */
import { request, setToken, whenSignedOut } from "./api.js";
import { changeDialog, inputField, isChanging, problem } from "./change.js";
import { h, render } from "./dom.js";
import { recordHistory } from "./history.js";
import { icon } from "./icons.js";
import { clear, follow, onDraw, redraw, start, streamState, use } from "./live.js";
import { empty, failed, pageHead, partial, site, to } from "./parts.js";
import { go, readRoute } from "./router.js";
import { enterTable, waiting } from "./table.js";
import { LANGUAGES, keep, language, loadLanguage, preferredLanguage, t, visible } from "./words.js";
import { accessPage, auditPage, changesPage, configurationPage, logPage } from "../pages/admin.js";
import { brokerPage, brokersPage } from "../pages/brokers.js";
import { clientsPage, groupPage, groupsPage } from "../pages/consumers.js";
import { deadLettersPage, deadPage } from "../pages/dead.js";
import { delayedPage, messagePage, searchPage, tracePage, waitingPage } from "../pages/messages.js";
import { overviewPage } from "../pages/overview.js";
import { tailPage } from "../pages/tail.js";
import { topicPage, topicsPage } from "../pages/topics.js";

/** What the rail says: path, key of `g` and a letter, sign. */
const RAIL = [
  ["overview", "o"], ["brokers", "b"], ["topics", "t"], ["consumers", "c"],
  ["messages", "m"], ["dead", "d"], ["clients", "l"], ["admin", "a"],
];
const PLACES = { tail: "topics", trace: "messages", delayed: "messages", half: "messages", access: "admin", configuration: "admin", log: "admin", audit: "admin", changes: "admin" };

/** First part of the path -> what draws the list, and what draws one of its things. */
const PAGES = {
  overview: [overviewPage], brokers: [brokersPage, brokerPage], topics: [topicsPage, topicPage], tail: [tailPage],
  consumers: [groupsPage, groupPage], clients: [clientsPage],
  messages: [searchPage, messagePage], trace: [tracePage], delayed: [delayedPage, waitingPage], half: [waitingPage],
  dead: [deadPage, deadLettersPage],
  admin: [accessPage], access: [accessPage], configuration: [configurationPage], log: [logPage], audit: [auditPage], changes: [changesPage],
};

/** The page of a path: a function of the other parts of the path and the query. Undefined: there is none. */
function pageOf([name = "overview", ...rest]) {
  const [list, one] = (Object.hasOwn(PAGES, name) && PAGES[name]) || [];
  return (rest.length && one) || list;
}

let signing = { access_key: "", secret_key: "", busy: false, error: null };
let helping = false;
let shownPath = "";

function view() {
  document.title = `${t(`page.${RAIL.some(([n]) => n === place()) ? place() : "overview"}`)} · LedgerMQ`;
  if (site.problem && !site.session) return h("main", { class: "sign-in" }, h("section", { class: "sheet" }, failed({ error: site.problem, key: "" }), h("div", { class: "body" }, h("button", { onclick: begin }, t("retry")))));
  if (!site.session) return waiting();
  if (site.session.sign_in_needed && !site.session.signed_in) return [signIn(), changeDialog()];
  return [frame(), changeDialog(), helping && keysDialog()];
}

const place = () => {
  const name = readRoute().path[0] || "overview";
  return PLACES[name] || name;
};

function frame() {
  const { path, query } = readRoute();
  const page = pageOf(path);
  let body;
  if (!site.clusters) body = site.problem ? failed({ error: site.problem, key: "" }) : waiting();
  else if (!site.cluster) body = [pageHead({ title: "LedgerMQ" }), h("section", { class: "sheet fill" }, empty(t("clusters.none"), t("clusters.none.text"), "brokers"))];
  else if (!page) body = [pageHead({ title: t("page.unknown") }), h("section", { class: "sheet fill" }, empty(t("page.unknown"), t("page.unknown.text"), "search"))];
  else body = page(path.slice(1), query, path);
  return h("div", { class: "frame", key: "frame" },
    h("a", { class: "skip", href: "#page", onclick: (e) => {
      e.preventDefault();
      document.querySelector("#page").focus();
    } }, t("skip")),
    h("nav", { class: "brand", "aria-label": "LedgerMQ" }, h("a", { href: to(["overview"]) }, h("img", { src: "icon.svg", alt: "LedgerMQ", width: 24, height: 24 }), h("span", { "aria-hidden": "true" }, "LedgerMQ"))),
    topBar(),
    h("nav", { class: "rail", "aria-label": t("rail") }, RAIL.map(([name, key]) => h("a", {
      href: to([name]), key: name, "aria-current": place() === name ? "page" : null, title: `g ${key}`,
    }, icon(name), h("span", {}, t(`page.${name}`)))),
    h("div", { class: "foot" }, site.session.version && `LedgerMQ ${visible(site.session.version)}`)),
    h("main", { class: "page", id: "page", tabindex: "-1", "data-path": path.join("/"), key: path.join("/") }, silentClusters(), body));
}

function topBar() {
  const clusters = site.clusters?.clusters || [];
  const state = streamState();
  const theme = document.documentElement.dataset.theme || "auto";
  const next = { auto: "light", light: "dark", dark: "auto" }[theme];
  return h("header", { class: "top" },
    clusters.length > 0 && [h("label", { class: "hidden", for: "cluster" }, t("cluster")), h("select", {
      class: "select", id: "cluster", value: site.cluster,
      onchange: (e) => {
        const first = clusters[0].id;
        go([readRoute().path[0] || "overview"], e.target.value === first ? {} : { cluster: e.target.value });
      },
    }, clusters.map((c) => h("option", { value: c.id, key: c.id }, visible(c.name))))],
    state !== "off" && h("span", { class: "age wide-only", role: "status" }, t(`stream.${state}`)),
    h("span", { class: "grow" }),
    h("button", { class: "quiet wide-only", onclick: () => help(true), title: t("keys") }, h("kbd", {}, "?"), h("span", { class: "hidden" }, t("keys"))),
    h("button", { class: "quiet", lang: language === "en" ? "zh-CN" : "en", onclick: () => chooseLanguage(language === "en" ? "zh" : "en") }, LANGUAGES[language === "en" ? "zh" : "en"]),
    h("button", { class: "quiet bare", "aria-label": t(`theme.${theme}`), title: t(`theme.${theme}`), onclick: () => {
      if (next === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      keep("theme", next === "auto" ? "" : next);
      redraw();
    } }, icon({ auto: "auto", light: "sun", dark: "moon" }[theme])),
    site.session.account && [h("span", { class: "tag wide-only", title: t(`role.${site.session.role}`) }, visible(site.session.account)),
      h("button", { class: "quiet bare", "aria-label": t("sign-out"), title: t("sign-out"), onclick: signOut }, icon("leave"))]);
}

async function chooseLanguage(name) {
  await loadLanguage(name);
  keep("language", name);
  redraw();
}

function signIn() {
  const submit = async (event) => {
    event.preventDefault();
    Object.assign(signing, { busy: true, error: null });
    redraw();
    try {
      take(await request("POST", "session", { body: { access_key: signing.access_key, secret_key: signing.secret_key, cluster: readRoute().query.cluster || "" } }));
      signing = { access_key: "", secret_key: "", busy: false, error: null };
      await loadClusters();
    } catch (error) {
      Object.assign(signing, { busy: false, error, secret_key: "" });
    }
    redraw();
  };
  return h("main", { class: "sign-in", key: "sign-in" }, h("form", { class: "sheet", onsubmit: submit },
    h("h1", {}, h("img", { src: "icon.svg", alt: "" }), "LedgerMQ"), h("p", { class: "soft" }, t("sign-in.text")),
    signing.error && problem(signing.error),
    inputField({ name: "access_key", label: t("sign-in.account"), required: true }, signing.access_key, (v) => (signing.access_key = v), { autocomplete: "username" }),
    inputField({ name: "secret_key", label: t("sign-in.secret"), type: "password", required: true }, signing.secret_key, (v) => (signing.secret_key = v), { autocomplete: "current-password" }),
    h("button", { class: "primary", type: "submit", disabled: signing.busy }, t("sign-in"))));
}

async function signOut() {
  try {
    take(await request("DELETE", "session"));
  } catch {
    await begin();
  }
  clear();
  redraw();
}

const KEYS = [["/", "keys.filter"], ["j k ↑ ↓", "keys.rows"], ["Enter", "keys.open"], ["x", "keys.choose"], ["Esc", "keys.back"], ...RAIL.map(([name, key]) => [`g ${key}`, `page.${name}`]), ["?", "keys"]];

function help(on) {
  helping = on;
  redraw();
}

const keysDialog = () => h("dialog", { key: "keys", "aria-labelledby": "keys-title", ref: (e) => e.open || e.showModal(), oncancel: () => help(false), onclose: () => help(false) },
  h("header", {}, h("h2", { id: "keys-title" }, t("keys")), h("button", { class: "quiet bare", "aria-label": t("close"), onclick: () => help(false) }, icon("close"))),
  h("dl", { class: "keys" }, KEYS.map(([key, text]) => [h("dt", {}, key.split(" ").map((k) => [h("kbd", {}, k), " "])), h("dd", {}, t(text))])));

let prefix = 0;

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isChanging() || helping) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (Date.now() - prefix < 1500 && RAIL.some(([, key]) => key === event.key)) {
    prefix = 0;
    location.hash = to([RAIL.find(([, key]) => key === event.key)[0]]);
  } else if (event.key === "g") {
    prefix = Date.now();
  } else if (event.key === "/") {
    const field = document.querySelector("#filter") || document.querySelector("#page input");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (event.key === "?") {
    help(true);
  } else if (event.key === "j" && !event.target.closest("tr")) {
    enterTable();
  } else if (event.key === "Escape") {
    const { path } = readRoute();
    if (path.length > 1) location.hash = to(path[0] === "messages" ? ["messages"] : path[0] === "tail" ? ["topics", path[1]] : path.slice(0, -1));
  }
}

function take(session) {
  site.session = session;
  setToken(session.csrf_token);
}

async function loadClusters() {
  site.clusters = await request("GET", "clusters");
  chooseCluster();
}

function chooseCluster() {
  const known = site.clusters?.clusters || [];
  const asked = readRoute().query.cluster;
  const cluster = known.find((c) => c.id === asked)?.id || known[0]?.id || "";
  if (cluster !== site.cluster) {
    clear();
    site.cluster = cluster;
    follow(`clusters/${encodeURIComponent(cluster)}/events`, (name, data) => {
      if (name === "history") recordHistory(data);
      // It has ended.
      if (name === "session") begin();
    });
  }
}

/** Which clusters did not answer; they are asked again, and the choice stays as it is. */
function silentClusters() {
  if (!site.clusters?.answers.silent.length) return null;
  const { data } = use("clusters", {}, { every: 15_000 });
  if (data) site.clusters = data;
  if (!site.cluster && site.clusters.clusters.length) setTimeout(() => (chooseCluster(), redraw()));
  return h("div", { key: "clusters" }, partial(site.clusters.answers));
}

/** Asks who is there and which clusters; once more when it did not work. */
async function begin() {
  site.problem = null;
  try {
    take(await request("GET", "session"));
    if (site.session.signed_in || !site.session.sign_in_needed) await loadClusters();
  } catch (error) {
    site.problem = error;
  }
  redraw();
}

async function main() {
  await loadLanguage(preferredLanguage());
  const app = document.querySelector("#app");
  onDraw(() => {
    render(app, view());
    const { path } = readRoute();
    if (shownPath && shownPath !== path.join("/") && !isChanging()) document.querySelector("#page")?.focus({ preventScroll: true });
    shownPath = path.join("/") || "overview";
  });
  whenSignedOut(() => {
    if (site.session?.signed_in) {
      site.session = { ...site.session, signed_in: false, may_change: false };
      redraw();
    }
  });
  addEventListener("hashchange", () => {
    chooseCluster();
    redraw();
  });
  addEventListener("keydown", onKey);
  // An open menu goes with a click beside it.
  addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  await begin();
  start();
}

main();
