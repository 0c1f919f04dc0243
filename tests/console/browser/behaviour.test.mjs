// What the page does: addresses, keys, live answers, tables, changes; with canned answers.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { PAGES, ROOT, openTab, settled, startBrowser, startCanned, stopBrowser, until, visit, violations, withAxe } from "./harness.mjs";

const SCRIPTS = ["js", "pages"].map((folder) => join(ROOT, "ledgermq", "console", "static", folder));
let server;

before(async () => {
  await startBrowser();
  server = await startCanned();
});

after(async () => {
  await stopBrowser();
  server.stop();
});

const firstCell = (page) => page.locator('tbody tr[data-row="0"] td').first().innerText();
const hash = (page) => page.evaluate(() => location.hash);

test("the address says sort, filter and page, and brings them back", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "consumers");
  await page.getByRole("button", { name: "Lag", exact: true }).click();
  await settled(page);
  assert.match(await hash(page), /sort=-lag_messages/);
  const top = await firstCell(page);
  await page.fill("#filter", "worker");
  await settled(page);
  assert.match(await hash(page), /q=worker/);
  await page.reload();
  await settled(page);
  assert.equal(await page.inputValue("#filter"), "worker");
  assert.equal(await page.locator("th[aria-sort=descending]").innerText(), "Lag");
  assert.equal(await firstCell(page), top);
  // A step into a group and back again: where one was.
  await page.locator("tbody a.name").first().click();
  await page.waitForSelector("h1");
  await until(async () => /^#\/consumers\/./.test(await hash(page)));
  await page.goBack();
  await until(async () => /q=worker/.test(await hash(page)));
  check();
  await close();
});

test("the modules of the page, in one scope, hide nothing of the browser's", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "overview");
  const names = [];
  for (const folder of SCRIPTS) for (const file of await readdir(folder)) {
    const script = await readFile(join(folder, file), "utf-8");
    names.push(...[...script.matchAll(/^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+)/gm)].map((m) => m[1]));
  }
  assert.ok(names.length > 200);
  assert.deepEqual(await page.evaluate((all) => all.filter((name) => name in window), names), []);
  check();
  await close();
});

test("an address with another cluster stays there from page to page", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "overview?cluster=single");
  await page.locator(".rail a").nth(2).click();
  await until(async () => (await hash(page)).startsWith("#/topics"));
  await settled(page);
  assert.match(await hash(page), /cluster=single/);
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.selectOption("#cluster", "large");
  await until(async () => (await page.locator("tbody tr").count()) > 10);
  assert.doesNotMatch(await hash(page), /cluster=/);
  check();
  await close();
});

test("all by keys", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "overview");
  for (const [key, place] of [["b", "brokers"], ["t", "topics"], ["c", "consumers"], ["m", "messages"], ["d", "dead"], ["l", "clients"], ["a", "admin"], ["o", "overview"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await until(async () => (await hash(page)).startsWith(`#/${place}`), { what: `g ${key}` });
  }
  await visit(page, server.url, "topics");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await until(() => page.evaluate(() => document.activeElement.dataset.row === "2"), { what: "third row" });
  await page.keyboard.press("k");
  await page.keyboard.press("End");
  await until(() => page.evaluate(() => document.activeElement.dataset.row === "999"), { what: "last row" });
  await page.keyboard.press("Home");
  await until(() => page.evaluate(() => document.activeElement.dataset.row === "0"), { what: "first row" });
  await page.keyboard.press("j");
  await until(() => page.evaluate(() => document.activeElement.dataset.row === "1"));
  await page.keyboard.press("Enter");
  await until(async () => /^#\/topics\/./.test(await hash(page)), { what: "one topic" });
  await settled(page);
  await page.keyboard.press("Escape");
  await until(async () => (await hash(page)) === "#/topics", { what: "back to the list" });
  await settled(page);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "filter");
  await page.keyboard.type("users");
  await page.keyboard.press("Escape");
  assert.equal(await page.inputValue("#filter"), "");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  check();
  await close();
});

test("Tab goes through each page, to things with names, and comes out again", async () => {
  const { page, check, close } = await openTab();
  const faults = [];
  for (const [name, path] of Object.entries(PAGES)) {
    await visit(page, server.url, path);
    await page.locator(".skip").focus();
    const seen = new Set();
    for (let i = 0; i < 400; i++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const e = document.activeElement;
        if (!e || e === document.body) return null;
        e.dataset.walked = e.dataset.walked || String(Math.random());
        const label = e.getAttribute("aria-label") || e.labels?.[0]?.innerText || e.innerText || e.title || e.querySelector("img")?.alt || "";
        const shown = e.checkVisibility() && e.getBoundingClientRect().width > 0;
        return { id: e.dataset.walked, label: label.trim(), shown, html: e.outerHTML.slice(0, 120), outline: getComputedStyle(e).outlineStyle };
      });
      if (!at) break;
      if (!at.label) faults.push(`${name}: no name: ${at.html}`);
      if (!at.shown) faults.push(`${name}: not visible: ${at.html}`);
      if (at.outline === "none") faults.push(`${name}: focus is not visible: ${at.html}`);
      if (seen.has(at.id)) break;
      seen.add(at.id);
    }
    if (seen.size < 10) faults.push(`${name}: only ${seen.size} stops`);
    if (seen.size >= 400) faults.push(`${name}: no end`);
  }
  assert.deepEqual([...new Set(faults)], []);
  check();
  await close();
});

test("a hidden tab asks nothing and closes its stream; a shown one goes on", async () => {
  const { page, check, close } = await openTab();
  await page.clock.install();
  let asked = 0;
  page.on("request", (request) => request.url().includes("/api/") && (asked += 1));
  await visit(page, server.url, "topics/orders-eu-0016");
  const see = (state) => page.evaluate((value) => {
    Object.defineProperty(document, "visibilityState", { value, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
  await see("hidden");
  asked = 0;
  await page.clock.runFor(120_000);
  assert.equal(asked, 0);
  await see("visible");
  await until(() => asked > 0, { what: "a request once it is seen again" });
  check();
  await close();
});

test("one stream of events for a page, and live figures by it", async () => {
  const { page, check, close } = await openTab();
  const streams = [];
  page.on("request", (request) => request.url().includes("/events?") && streams.push(request.url()));
  await visit(page, server.url, "overview");
  await page.waitForSelector("text=live");
  await until(() => streams.at(-1).includes("parts=overview%2Chistory"), { what: "a stream for all parts" });
  const number = page.locator(".figure .number").first();
  const before = await number.innerText();
  await until(async () => (await number.innerText()) !== before, { what: "a new figure" });
  check();
  await close();
});

test("a server that goes away is said, and what was shown stays", async () => {
  const { page, close } = await openTab();
  const own = await startCanned();
  await visit(page, own.url, "overview");
  own.stop();
  await page.waitForSelector(".notice.warn[role=status]", { timeout: 40_000 });
  assert.match(await page.locator(".notice.warn[role=status]").innerText(), /No new answer/);
  assert.ok(await page.locator(".figure .number").count());
  await close();
});

test("partial answers are named", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "brokers");
  await page.getByText("5 of 6 servers answered").click();
  assert.match(await page.locator("details.notice ul").innerText(), /broker-b n2 \(10\.0\.0\.23:10911\): no answer within 3 s/);
  assert.match(await page.locator("tbody").nth(1).innerText(), /no answer/);
  check();
  await close();
});

test("a cluster that does not answer is named, and is there when it does", async () => {
  const { page, check, close } = await openTab();
  let silent = true;
  await page.route("**/api/v1/clusters", async (route) => {
    const reply = await route.fetch();
    const { clusters, answers } = await reply.json();
    if (!silent) return route.fulfill({ json: { clusters, answers } });
    const lost = { who: "name server", address: "10.0.0.9:9876", reason: "no connection" };
    return route.fulfill({ json: { clusters: clusters.slice(1), answers: { ...answers, answered: answers.asked - 1, silent: [lost] } } });
  });
  await page.clock.install();
  await visit(page, server.url, "topics");
  const [first] = await page.locator("#cluster option").allInnerTexts();
  await page.locator("summary", { hasText: "2 of 3 servers answered" }).first().click();
  assert.match(await page.locator("details.notice ul").first().innerText(), /name server \(10\.0\.0\.9:9876\): no connection/);
  silent = false;
  await page.clock.runFor(20_000);
  await until(async () => (await page.locator("#cluster option").count()) === 3);
  assert.equal(await page.locator("#cluster option:checked").innerText(), first, "the choice stays");
  assert.equal(await page.locator("details.notice").count(), 0);
  check();
  await close();
});

test("the whole list as CSV, formulas made harmless", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "topics");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
  const text = await readFile(await file.path(), "utf-8");
  const lines = text.replace("\ufeff", "").split("\r\n");
  assert.equal(lines[0], "Topic,Kind,Queues,In,\"In, bytes\",Kept,Last write,Groups,Brokers");
  assert.ok(text.includes("'=HYPERLINK(1)"));
  // One name holds a line break; it stands in quotes.
  assert.equal(lines.filter((line) => /,broker-a/.test(line) || /broker-b/.test(line)).length, 1000);
  check();
  await close();
});

test("a search runs, counts, shows what it found, and is stopped", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "messages");
  await page.fill("#field-topic", "stock-eu-0016");
  await page.fill("#field-tag", "paid");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".budget");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.waitForSelector("text=Stopped");
  assert.match(await page.locator(".budget").innerText(), /scanned [\d,]+ of 1,200,000/);
  assert.match(await hash(page), /topic=stock-eu-0016.*tag=paid/);
  await page.getByRole("button", { name: "Search" }).click();
  await page.waitForSelector(".budget:has-text('Complete')");
  await page.locator('tbody tr[data-row="7"] a').first().click();
  await page.waitForSelector("pre.text");
  await page.getByRole("button", { name: "Hex" }).click();
  assert.match(await page.locator("pre.hex").innerText(), /^00000000 {2}7b 0a 20 20/);
  assert.match(await hash(page), /view=hex/);
  check();
  await close();
});

test("a search that another one follows is stopped", async () => {
  const { page, check, close } = await openTab();
  const asked = [];
  page.on("request", (request) => /searches/.test(request.url()) && request.method() !== "GET" && asked.push(`${request.method()} ${request.url().replace(/.*searches/, "")}`));
  await visit(page, server.url, "messages");
  for (const topic of ["stock-eu-0016", "stock-eu-0017"]) {
    await page.fill("#field-topic", topic);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".budget .waiting");
    await until(async () => (await hash(page)).includes(topic));
  }
  await until(async () => asked.length === 3);
  assert.match(asked.join(" "), /^POST +DELETE \/\w+ POST *$/);
  check();
  await close();
});

test("a change: preview, confirm once, result item by item", async () => {
  const { page, check, close } = await openTab();
  await withAxe(page);
  const posts = [];
  page.on("request", (request) => request.method() === "POST" && posts.push([new URL(request.url()).pathname, request.postDataJSON(), request.headers()["x-csrf-token"]]));
  await visit(page, server.url, "consumers/billing");
  await page.getByText("Actions").click();
  await page.getByRole("button", { name: "Reset offsets" }).click();
  await page.selectOption("#field-to", "shift");
  await page.fill("#field-value", "-100");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("text=2 members of the group are online");
  assert.deepEqual(await violations(page), []);
  assert.equal(posts.length, 1);
  assert.deepEqual(posts[0][1], { kind: "reset_offset", group: "billing", topic: "stock-eu-0016", to: "shift", moment_ms: null, value: -100, broker: "", queue: null });
  assert.equal(posts[0][2], "t");
  // Two clicks in one turn: one confirmation.
  await page.getByRole("button", { name: "Reset offsets" }).last().evaluate((button) => {
    button.click();
    button.click();
  });
  await page.waitForSelector(".notice[role=status] strong:has-text('Some items failed')");
  assert.equal(posts.length, 2);
  assert.match(await page.locator("dialog .notice[role=status]").innerText(), /15 done/);
  assert.match(await page.locator("dialog tbody tr").first().innerText(), /failed[\s\S]*the broker refused: topic is read only/);
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Close" }).last().click();
  await page.waitForSelector("dialog", { state: "detached" });
  check();
  await close();
});

test("a thousand dead letters are sent anew, with progress and a report", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "dead/billing");
  await page.locator('tbody tr[data-row="0"] input').check();
  await page.locator('tbody tr[data-row="3"] input').check();
  await page.getByRole("button", { name: "Older" }).click();
  await until(async () => /cursor=50/.test(await hash(page)));
  await settled(page);
  await page.locator('tbody tr[data-row="1"] input').check();
  await page.getByRole("button", { name: "Resend 3 chosen" }).click();
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await page.getByRole("button", { name: "Preview" }).click();
  const body = (await asked).postDataJSON();
  assert.deepEqual(body.messages.map((m) => m.offset), [0, 3, 51]);
  await page.getByRole("button", { name: "Resend", exact: true }).click();
  await page.waitForSelector("dialog [role=progressbar]");
  await page.waitForSelector("dialog .notice[role=status]", { timeout: 20_000 });
  assert.match(await page.locator("dialog .notice[role=status]").innerText(), /999 done · 1 failed/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Report" }).click()]);
  assert.match(await readFile(await file.path(), "utf-8"), /target,state,reason,before,after/);
  check();
  await close();
});

test("a live tail shows what comes, says what it passed over, and stops when it is left", async () => {
  const { page, check, close } = await openTab();
  let looks = 0;
  page.on("request", (request) => (looks += request.url().endsWith("/tail")));
  await visit(page, server.url, "topics/orders-eu-0016");
  await page.getByRole("link", { name: "Live tail" }).click();
  await settled(page);
  assert.equal(looks, 0);
  await page.getByRole("textbox", { name: "Tag", exact: true }).fill("paid");
  const first = page.waitForRequest((request) => request.url().endsWith("/tail"));
  await page.getByRole("button", { name: "Start" }).click();
  assert.deepEqual((await first).postDataJSON(), { cursor: "", limit: 50, tag: "paid", text: "" });
  await until(async () => (await page.locator("tbody tr").count()) >= 6, { what: "six messages" });
  assert.match(await page.locator(".notice.warn").innerText(), /40 messages came faster/);
  // What is hostile in a body is a text.
  assert.equal(await page.locator("tbody img, tbody script").count(), 0);
  await page.keyboard.press("Escape");
  await until(async () => (await hash(page)) === "#/topics/orders-eu-0016");
  await settled(page);
  await page.goBack();
  await page.waitForSelector("text=stopped: the page was left");
  check();
  await close();
});

test("definitions are saved as a file, and such a file is imported after a look", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "topics");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export" }).click()]);
  assert.equal(file.suggestedFilename(), "definitions.json");
  assert.deepEqual(JSON.parse(await readFile(await file.path(), "utf-8")), { topics: [], groups: [] });
  await page.getByRole("button", { name: "Import…" }).click();
  await page.fill("#field-definitions", "{ no JSON");
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("dialog .notice.bad:has-text('JSON')");
  const chosen = { topics: [{ topic: "<b>orders</b>" }], groups: [] };
  await page.setInputFiles("dialog input[type=file]", { name: "d.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(chosen)) });
  await until(async () => (await page.inputValue("#field-definitions")).includes("orders"));
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await page.getByRole("button", { name: "Preview" }).click();
  assert.deepEqual((await asked).postDataJSON(), { kind: "import_definitions", definitions: chosen });
  await page.waitForSelector("dialog tbody tr");
  await page.locator("dialog footer").getByRole("button", { name: "Import", exact: true }).click();
  await page.waitForSelector("dialog .notice[role=status]", { timeout: 20_000 });
  check();
  await close();
});

test("dead letters are dropped: those chosen, after a look, with a result for each", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "dead/billing");
  assert.deepEqual((await page.locator("tbody .state").allInnerTexts()).slice(0, 7), ["waiting", "waiting", "waiting", "waiting", "resent", "dropped", "unknown"]);
  await page.locator('tbody tr[data-row="2"] input').check();
  await page.getByRole("button", { name: "Drop 1 chosen" }).click();
  const asked = page.waitForRequest((request) => request.method() === "POST");
  await page.getByRole("button", { name: "Preview" }).click();
  const body = (await asked).postDataJSON();
  assert.equal(body.kind, "drop_dead_letters");
  assert.deepEqual(body.messages.map((m) => m.offset), [2]);
  await page.locator("dialog footer").getByRole("button", { name: "Drop", exact: true }).click();
  await page.waitForSelector("dialog .notice[role=status]", { timeout: 20_000 });
  check();
  await close();
});

test("a name has to be typed before a topic is deleted", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "topics/orders-eu-0016");
  await page.getByText("Actions").click();
  await page.getByRole("button", { name: "Delete" }).click();
  const confirm = page.locator("dialog footer button.danger");
  await page.waitForSelector("#change-typed");
  assert.ok(await confirm.isDisabled());
  await page.fill("#change-typed", "orders-eu-001");
  assert.ok(await confirm.isDisabled());
  await page.fill("#change-typed", "orders-eu-0016");
  // The page draws what was typed in its own time.
  await until(() => confirm.isEnabled(), { what: "the button" });
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  check();
  await close();
});

test("a session that ends in the midst of a change asks to sign in, and does nothing twice", async () => {
  const { page, check, close } = await openTab();
  const session = { signed_in: true, sign_in_needed: true, account: "operator", role: "admin", may_change: true, csrf_token: "t", idle_s: 1800, ends_ms: null, version: "0.9.0" };
  let ended = false;
  await page.route("**/api/v1/session", (route) => route.fulfill({ json: ended ? { ...session, signed_in: false, may_change: false, account: null } : session }));
  await visit(page, server.url, "consumers/billing");
  await page.getByText("Actions").click();
  await page.getByRole("button", { name: "Copy offsets" }).click();
  await page.fill("#field-target", "other");
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("dialog tbody tr");
  ended = true;
  let confirmed = 0;
  await page.route("**/actions/*", (route) => {
    confirmed += 1;
    return route.fulfill({ status: 401, json: { error: { code: "not_signed_in", message: "sign in first" } } });
  });
  await page.locator("dialog footer button.danger").click();
  await page.waitForSelector("#field-access_key");
  assert.equal(confirmed, 1);
  check({ mayRefuse: true });
  await close();
});

test("a menu goes with Escape and with a click beside it", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "topics/orders-eu-0016");
  const open = () => page.locator(".menu[open]").count();
  await page.getByText("Actions").click();
  assert.equal(await open(), 1);
  await page.locator("h1").click();
  assert.equal(await open(), 0);
  await page.getByText("Actions").click();
  await page.keyboard.press("Escape");
  assert.equal(await open(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
  check();
  await close();
});

test("readers see no actions", async () => {
  const { page, check, close } = await openTab();
  await page.route("**/api/v1/session", (route) => route.fulfill({ json: { signed_in: true, sign_in_needed: true, account: "guest", role: "reader", may_change: false, csrf_token: "t", idle_s: 1800, ends_ms: null, version: "0.9.0" } }));
  for (const path of Object.values(PAGES)) {
    await visit(page, server.url, path);
    const found = await page.locator("#page").getByText(/^(Actions|New topic|New group|New account|Change|Delete|Resend all…)$/).count();
    assert.equal(found, 0, path);
  }
  check();
  await close();
});

test("in a narrow window each column has room, and no head is cut at its beginning", async () => {
  const { page, check, close } = await openTab({ viewport: { width: 900, height: 800 } });
  for (const name of ["clients", "dead-letters", "topics", "consumers", "group-settings", "client"]) {
    await visit(page, server.url, PAGES[name]);
    const narrow = await page.evaluate(() => [...document.querySelectorAll("#page th:not(.choose)")].filter((th) => th.offsetWidth < 50).map((th) => th.innerText));
    assert.deepEqual(narrow, [], name);
    const cut = await page.evaluate(() => [...document.querySelectorAll("#page .short th button")].filter((button) => button.scrollWidth > button.clientWidth + 1).map((button) => button.innerText));
    assert.deepEqual(cut, [], name);
  }
  check();
  await close();
});

test("the hour of a group: what it was behind, with round marks of time", async () => {
  const { page, check, close } = await openTab();
  await visit(page, server.url, "consumers/billing");
  const drawn = page.locator(".plot").nth(1).locator(".mark em");
  // The plot comes with its own answer, behind the page's.
  await drawn.first().waitFor();
  const marks = await drawn.allInnerTexts();
  assert.deepEqual(marks, ["0 ms", "1 min", "2 min", "3 min"]);
  check();
  await close();
});
