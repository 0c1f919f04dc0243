// Every page: with nothing, with one and with 1,000 topics and 2,300 groups; in both themes, both
// languages and on a phone. No error, no violation of the policy, nothing that axe objects to.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PAGES, openTab, startBrowser, startCanned, stopBrowser, violations, visit, withAxe } from "./harness.mjs";

let server;

before(async () => {
  await startBrowser();
  server = await startCanned();
});

after(async () => {
  await stopBrowser();
  server.stop();
});

const at = (path, cluster) => `${path}${path.includes("?") ? "&" : "?"}cluster=${cluster}`;

for (const theme of ["light", "dark"]) {
  test(`axe finds nothing, ${theme}`, async () => {
    const tab = await openTab({ colorScheme: theme });
    await withAxe(tab.page);
    const found = [];
    for (const [name, path] of Object.entries(PAGES)) {
      await visit(tab.page, server.url, path);
      found.push(...(await violations(tab.page)).map((text) => `${name}: ${text}`));
    }
    assert.deepEqual(found, []);
    tab.check();
    await tab.close();
  });
}

for (const cluster of ["empty", "single", "large"]) {
  test(`each page of the cluster ${cluster}`, async () => {
    const tab = await openTab();
    const missing = [];
    for (const [name, path] of Object.entries(PAGES)) {
      await visit(tab.page, server.url, at(path, cluster));
      const text = await tab.page.locator("#page").innerText();
      if (!text.trim()) missing.push(`${name}: nothing on it`);
      if (name !== "unknown" && /No such page/.test(text)) missing.push(`${name}: no such page`);
      // Nothing is wider than the page: only tables scroll sideways.
      const wide = await tab.page.evaluate(() => document.querySelector("#page").scrollWidth - document.querySelector("#page").clientWidth);
      if (wide > 0) missing.push(`${name}: ${wide} px too wide`);
    }
    assert.deepEqual(missing, []);
    tab.check();
    await tab.close();
  });
}

test("first rows of a thousand topics and 2,300 groups", async (t) => {
  const tab = await openTab();
  for (const path of ["topics", "consumers"]) {
    await visit(tab.page, server.url, "overview");
    const begun = Date.now();
    await tab.page.goto(`${server.url}#/${path}`);
    await tab.page.waitForSelector('tbody tr[data-row="0"]');
    t.diagnostic(`${path}: first row after ${Date.now() - begun} ms`);
    await visit(tab.page, server.url, path);
    const rows = await tab.page.locator("tbody tr").count();
    assert.ok(rows > 15 && rows < 80, `${rows} rows are elements`);
  }
  tab.check();
  await tab.close();
});

test("nothing is asked that is not shown", async () => {
  const tab = await openTab();
  const asked = [];
  tab.page.on("request", (request) => asked.push(new URL(request.url()).pathname + new URL(request.url()).search));
  await visit(tab.page, server.url, "consumers");
  const lists = asked.filter((path) => path.includes("/consumer-groups?"));
  assert.equal(lists.length, 1, lists.join("\n"));
  assert.match(lists[0], /limit=50/);
  await tab.page.locator(".scroll").evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await tab.page.waitForSelector('tr[data-row="2299"]');
  const more = asked.filter((path) => path.includes("/consumer-groups?")).length;
  assert.ok(more <= 4, `${more} requests for a jump to the end`);
  tab.check();
  await tab.close();
});

test("both languages say everything", async () => {
  const tab = await openTab({ locale: "zh-CN" });
  const english = [];
  for (const [name, path] of Object.entries(PAGES)) {
    await visit(tab.page, server.url, path);
    // A key that has no text is shown as it is.
    const keys = await tab.page.evaluate(() => [...document.querySelectorAll("#app *")].flatMap((e) => [...e.childNodes]).filter((n) => n.nodeType === 3).map((n) => n.nodeValue.trim()).filter((text) => /^[a-z]+(-[a-z]+)*\.[a-z_.-]+$/.test(text)));
    english.push(...keys.map((key) => `${name}: ${key}`));
    assert.match(await tab.page.locator("h1").first().innerText() + (await tab.page.locator(".rail").innerText()), /[\u4e00-\u9fff]/);
  }
  assert.deepEqual(english, []);
  assert.equal(await tab.page.evaluate(() => document.documentElement.lang), "zh-CN");
  tab.check();
  await tab.close();
});

test("the overview on a phone", async () => {
  const tab = await openTab({ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await withAxe(tab.page);
  await visit(tab.page, server.url, "overview");
  const wide = await tab.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} px too wide`);
  assert.deepEqual(await violations(tab.page), []);
  await tab.page.locator(".rail a").nth(2).tap();
  await tab.page.waitForSelector('tbody tr[data-row="0"]');
  tab.check();
  await tab.close();
});

test("names and bodies of the hostile kind stay text", async () => {
  const tab = await openTab();
  for (const path of ["overview", "topics", "consumers", "dead", "clients", "log", "found", "access", "messages/stock-eu-0016/broker-a/3/3", "messages/stock-eu-0016/broker-a/3/5"]) {
    await visit(tab.page, server.url, path === "found" ? PAGES.found : path);
    const strange = await tab.page.evaluate(() => document.querySelectorAll("#page img, #page script, #page b b, #page iframe, #page [onerror]").length);
    assert.equal(strange, 0, path);
  }
  await visit(tab.page, server.url, "topics");
  assert.ok(await tab.page.getByText("<img src=x onerror=alert(1)>").count());
  // What would turn the writing around, or end a line, is shown as what it is.
  const text = await tab.page.locator("tbody").innerText();
  assert.ok(text.includes("a\\u202eb"), "the override is visible");
  assert.ok(!/[\u202e\u0007\u0000]/.test(text), "nothing invisible is left");
  await tab.page.getByText("<img src=x onerror=alert(1)>").first().click();
  await tab.page.waitForSelector("h1:has-text('<img src=x')");
  // Four MiB of markup and control characters: cut by the server, shown as text.
  await visit(tab.page, server.url, "messages/stock-eu-0016/broker-a/3/3");
  assert.match(await tab.page.locator("pre.text").innerText(), /^<script>alert\(1\)<\/script>␀␇\\u202e/);
  tab.check();
  await tab.close();
});
