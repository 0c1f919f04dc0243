// A Chromium, the server it looks at, and what must never happen in it: errors of the page, violations
// of its policy, dialogs of injected code.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const TOOLS = resolve(process.env.CONSOLE_TOOLS || "build/console");
const find = createRequire(join(TOOLS, "package.json"));
const { chromium } = find("playwright-core");
export const AXE = find.resolve("axe-core/axe.min.js");
export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
export const PYTHON = process.env.CONSOLE_PYTHON || join(ROOT, ".venv", "bin", "python");

/** Every page by its name; the addresses are good for the canned clusters. */
export const PAGES = {
  overview: "overview", brokers: "brokers", "broker-group": "brokers/broker-a",
  topics: "topics?sort=-in_per_s", topic: "topics/orders-eu-0016", "topic-groups": "topics/orders-eu-0016/groups", "topic-settings": "topics/orders-eu-0016/settings",
  tail: "tail/orders-eu-0016",
  consumers: "consumers?sort=-lag_messages", "consumer-group": "consumers/billing", "group-clients": "consumers/billing/clients", "group-settings": "consumers/billing/settings", "group-history": "consumers/billing/history",
  client: "consumers/billing/clients/10.0.4.1%404001?stacks=1",
  search: "messages", found: "messages?topic=stock-eu-0016&tag=paid&run=1", message: "messages/stock-eu-0016/broker-a/3/7", binary: "messages/stock-eu-0016/broker-a/2/2?view=hex",
  dead: "dead", "dead-letters": "dead/billing", delayed: "delayed", "delay-level": "delayed/3", half: "half", trace: "trace?id=7F00000100010000", clients: "clients",
  access: "access", configuration: "configuration", log: "log", audit: "audit", changes: "changes", unknown: "nowhere",
};

/** Starts the canned server; gives its address and how to end it. */
export async function startCanned(env = {}) {
  const server = spawn(PYTHON, ["-m", "tests.console.canned", "0"], { cwd: ROOT, env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(server.stdout, "data");
  return { url: String(line).trim(), stop: () => server.stdin.end() };
}

let browser = null;

export async function startBrowser() {
  browser = await chromium.launch({ executablePath: process.env.CONSOLE_CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  return browser;
}

export const stopBrowser = () => browser.close();

/**
 * A tab that keeps what went wrong in it. `check()` fails with all of it.
 * @param {object} options of the browser's context
 */
export async function openTab(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, locale: "en-US", acceptDownloads: true, ...options });
  const page = await context.newPage();
  const faults = [];
  const refused = [];
  // What a request is answered when it is refused is logged by the browser, too; tests that expect it say so.
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    (/^Failed to load resource/.test(message.text()) ? refused : faults).push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack || error}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  const check = ({ mayRefuse = false } = {}) => {
    assert.deepEqual(faults, []);
    if (!mayRefuse) assert.deepEqual(refused, []);
  };
  return { page, context, check, close: () => context.close() };
}

/** Waits until the page of the address is drawn, and nothing on it is awaited any more. */
export async function settled(page) {
  await page.waitForSelector("#page, .sign-in");
  await page.waitForFunction(() => {
    const path = location.hash.replace(/^#?\/?/, "").split("?")[0].split("/").filter(Boolean).map(decodeURIComponent).join("/");
    return document.querySelector(".sign-in") || document.querySelector("#page")?.dataset.path === path;
  });
  await page.waitForFunction(() => !document.querySelector("#page .loading, #page tr.wait, #page p.waiting, #page .budget .waiting"), null, { timeout: 20_000 });
}

/** Goes to a page of the console and waits for it. */
export async function visit(page, url, path) {
  await page.goto(`${url}#/${path}`);
  await settled(page);
}

/** What axe finds wrong, as lines. */
export async function violations(page) {
  const { results } = await page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return { results: found.violations.map((v) => `${v.id}: ${v.help}\n  ${v.nodes.slice(0, 4).map((n) => `${n.html.slice(0, 160)} ${n.any.map((a) => a.message).join("; ").slice(0, 200)}`).join("\n  ")}`) };
  });
  return results;
}

/** axe is put into the page past its policy, as an extension of the browser would be. */
export const withAxe = (page) => page.addInitScript({ path: AXE });

/** Asks again until it holds; the last reason is the failure. */
export async function until(question, { timeout = 15_000, what = "it" } = {}) {
  const end = Date.now() + timeout;
  for (;;) {
    const answer = await question();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`${what}: not within ${timeout} ms`);
    await new Promise((done) => setTimeout(done, 100));
  }
}
