// The page on a real cluster of three, with messages of all kinds and a thousand dead letters.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { openTab, settled, startBrowser, stopBrowser, until, violations, visit, withAxe } from "./harness.mjs";

const url = process.env.CONSOLE_URL;
const PAGES = ["overview", "brokers", "brokers/broker-a", "topics", "topics/Orders", "topics/Orders/groups", "topics/Orders/settings", "consumers", "consumers/Gravediggers", "consumers/Gravediggers/clients", "consumers/Gravediggers/settings", "consumers/Gravediggers/history", "messages", "messages?topic=Orders&run=1", "dead", "dead/Gravediggers", "delayed", "half", "trace?id=none", "clients", "access", "configuration", "log", "audit", "changes"];

before(startBrowser);
after(stopBrowser);

for (const colorScheme of ["light", "dark"]) {
  test(`each page, ${colorScheme}`, async () => {
    const tab = await openTab({ colorScheme });
    await withAxe(tab.page);
    const faults = [];
    for (const path of PAGES) {
      await visit(tab.page, url, path);
      faults.push(...(await violations(tab.page)).map((text) => `${path}: ${text}`));
      for (const text of await tab.page.locator("#page .notice.bad[role=alert]").allInnerTexts()) faults.push(`${path}: ${text}`);
    }
    assert.deepEqual(faults, []);
    tab.check();
    await tab.close();
  });
}

test("bodies of all kinds, as they are", async () => {
  const { page, check, close } = await openTab();
  await visit(page, url, "messages?topic=Orders&run=1");
  await page.waitForSelector(".budget:has-text('Complete')");
  assert.equal(await page.locator("tbody tr").count(), 5);
  const seen = [];
  for (let i = 0; i < 5; i++) {
    await visit(page, url, `messages/Orders/broker-a/0/${i}`);
    const body = page.locator("section:has(h2:text-is('Body'))");
    seen.push([await body.locator("pre").count() ? (await body.locator("pre").innerText()).slice(0, 60) : "", await body.locator("header").innerText()]);
  }
  assert.match(seen[0][0], /"order": 1/);
  assert.match(seen[1][0], /^00000000 {2}00 01 02/);
  assert.match(seen[2][0], /^00000000 {2}ff fe 20/);
  assert.match(seen[3][0], /^<img src=x onerror=alert\(1\)>␀␇\\u202e/);
  assert.equal(seen[4][0], "");
  assert.equal(await page.evaluate(() => document.querySelectorAll("#page img").length), 0);
  const link = await page.goto(`${url}#/messages/Orders/broker-a/0/3`).then(() => page.waitForSelector("a[download]"));
  assert.match(await link.getAttribute("href"), /\/body$/);
  check();
  await close();
});

test("a topic is created, written to, found and deleted", async () => {
  const { page, check, close } = await openTab();
  await visit(page, url, "topics");
  await page.getByRole("button", { name: "New topic" }).click();
  await page.fill("#field-topic", "FromThePage");
  await page.fill("#field-write_queues", "3");
  await page.fill("#field-read_queues", "3");
  await finish(page, "Create");
  await until(async () => {
    await visit(page, url, "topics?q=fromthe");
    return (await page.locator("tbody").innerText()).includes("FromThePage");
  }, { what: "the topic in the list" });
  await visit(page, url, "topics/FromThePage");
  await page.getByText("Actions").click();
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.fill("#field-body", "from the page <b>");
  await page.fill("#field-keys", "pagekey");
  await finish(page, "Send");
  await until(async () => {
    await visit(page, url, "messages?topic=FromThePage&key=pagekey");
    await page.waitForSelector(".budget .state");
    return (await page.locator("tbody a").count()) === 1;
  }, { what: "the message by its key" });
  await page.locator("tbody a").click();
  await page.waitForSelector("pre.text:has-text('from the page <b>')");
  await visit(page, url, "topics/FromThePage");
  await page.getByText("Actions").click();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.fill("#change-typed", "FromThePage");
  await confirm(page, "Delete");
  await visit(page, url, "changes");
  assert.match(await page.locator("tbody").innerText(), /Delete topic[\s\S]*Send message[\s\S]*Create topic/);
  await visit(page, url, "audit");
  assert.match(await page.locator("tbody").innerText(), /Delete topic/);
  check();
  await close();
});

/** From the filled form to the end, which has to be without a failure. */
async function finish(page, button) {
  await page.getByRole("button", { name: "Preview" }).click();
  await confirm(page, button);
}

async function confirm(page, button, timeout = 30_000) {
  await page.locator("dialog footer").getByRole("button", { name: button, exact: true }).click();
  await page.waitForSelector("dialog .notice[role=status]", { timeout });
  assert.match(await page.locator("dialog .notice[role=status]").innerText(), /^Done/);
  await page.locator("dialog footer").getByRole("button", { name: "Close" }).click();
  await page.waitForSelector("dialog", { state: "detached" });
}

test("a thousand dead letters are sent anew, once", async () => {
  const { page, check, close } = await openTab();
  await visit(page, url, "dead");
  await page.getByRole("link", { name: "Gravediggers" }).click();
  await settled(page);
  await page.waitForSelector("text=1,000 dead letters");
  await page.getByRole("button", { name: "Resend all…" }).click();
  await page.fill("#field-per_s", "500");
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("dialog tbody tr");
  await page.locator("dialog footer").getByRole("button", { name: "Resend", exact: true }).click();
  await page.waitForSelector("dialog .notice[role=status]", { timeout: 300_000 });
  assert.match(await page.locator("dialog .notice[role=status]").innerText(), /Done[\s\S]*1,000 done/);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Report" }).click()]);
  assert.equal((await readFile(await file.path(), "utf-8")).split("\r\n").length, 1001);
  await page.locator("dialog footer").getByRole("button", { name: "Close" }).click();
  // Once more: there is nothing left to do.
  await page.getByRole("button", { name: "Resend all…" }).click();
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("dialog .notice, dialog tbody tr");
  const confirmation = page.locator("dialog footer").getByRole("button", { name: "Resend", exact: true });
  if ((await confirmation.count()) && (await confirmation.isEnabled())) {
    await confirmation.click();
    await page.waitForSelector("dialog .notice[role=status]", { timeout: 60_000 });
    assert.doesNotMatch(await page.locator("dialog .notice[role=status]").innerText(), /\d done/);
  }
  await page.keyboard.press("Escape");
  await until(async () => {
    await visit(page, url, "dead/Gravediggers");
    return (await page.locator("tbody .state:has-text('resent')").count()) === 50;
  }, { what: "what became of each", timeout: 60_000 });
  check({ mayRefuse: true });
  await close();
});

test("a leader that is killed while it is watched", async (t) => {
  const { page, check, close } = await openTab();
  const ready = async () => JSON.parse(await readFile(process.env.CONSOLE_READY, "utf-8"));
  await visit(page, url, "brokers/broker-a");
  await page.waitForSelector("text=live");
  const leader = () => page.evaluate(() => [...document.querySelectorAll("tbody tr")].find((row) => /leader/.test(row.cells[1]?.innerText))?.cells[0].innerText);
  const old = await until(leader, { what: "a leader on the page" });
  const { brokers } = await ready();
  const term = await page.locator(".tag:has-text('term')").first().innerText();
  process.kill(brokers.find((b) => b.id === old).pid, "SIGKILL");
  const begun = Date.now();
  const next = await until(async () => {
    const name = await leader();
    return name && name !== old && name;
  }, { what: "another leader on the page", timeout: 60_000 });
  t.diagnostic(`${old} -> ${next}, on the page ${Date.now() - begun} ms after the kill`);
  assert.notEqual(await page.locator(".tag:has-text('term')").first().innerText(), term);
  await page.waitForSelector("#page .events li", { timeout: 30_000 });
  assert.match(await page.locator("#page .events").innerText(), new RegExp(`new leader|does not answer|${next}`));
  // It comes back by itself, and the page says so.
  await until(async () => /follower/.test(await page.locator(`tbody tr:has-text("${old}")`).first().innerText()), { what: "the old leader as a follower", timeout: 60_000 });
  await visit(page, url, "overview");
  await until(async () => /Healthy|Needs a look/.test(await page.locator(".health").innerText()));
  check();
  await close();
});
