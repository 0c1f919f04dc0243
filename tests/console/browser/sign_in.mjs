// Sign-in by the accounts of the brokers, and what each may see and do.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openTab, settled, startBrowser, stopBrowser, violations, withAxe } from "./harness.mjs";

const url = process.env.CONSOLE_URL;

before(startBrowser);
after(stopBrowser);

async function signIn(page, account, secret) {
  await page.fill("#field-access_key", account);
  await page.fill("#field-secret_key", secret);
  await page.keyboard.press("Enter");
}

test("a wrong secret is refused, the right one lets in, signing out ends it", async () => {
  const { page, context, check, close } = await openTab();
  await withAxe(page);
  await page.goto(`${url}#/topics`);
  await page.waitForSelector("#field-access_key");
  assert.deepEqual(await violations(page), []);
  await signIn(page, "operator", "wrong-secret");
  await page.waitForSelector(".notice.bad");
  assert.equal(await page.inputValue("#field-secret_key"), "");
  await signIn(page, "operator", "operator-secret");
  // Where one wanted to go.
  await page.waitForSelector("h1:has-text('Topics')");
  await settled(page);
  assert.ok(await page.getByRole("button", { name: "New topic" }).count());
  const cookies = await context.cookies();
  assert.ok(cookies.length && cookies.every((c) => c.httpOnly && c.sameSite === "Strict"), JSON.stringify(cookies));
  await page.goto(`${url}#/access`);
  await settled(page);
  await page.waitForSelector("tbody td:has-text('guestling')");
  assert.deepEqual(await violations(page), []);
  await page.selectOption("#field-access_key", "guestling");
  await page.fill("#field-name", "Mine");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.waitForSelector(".notice.ok:has-text('Yes.')");
  await page.fill("#field-name", "Other");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.waitForSelector(".notice.bad:has-text('No.')");
  // Signing out in one tab ends the other one, too: its stream tells it.
  const other = await context.newPage();
  await other.goto(`${url}#/overview`);
  await other.waitForSelector("text=live");
  await page.getByRole("button", { name: "Sign out" }).click();
  await other.waitForSelector("#field-access_key");
  await other.close();
  await page.waitForSelector("#field-access_key");
  await page.reload();
  await page.waitForSelector("#field-access_key");
  check({ mayRefuse: true });
  await close();
});

test("an account with few rights: what the brokers refuse is said", async () => {
  const { page, check, close } = await openTab();
  await page.goto(`${url}#/overview`);
  await page.waitForSelector("#field-access_key");
  await signIn(page, "guestling", "guestling-secret");
  await page.waitForSelector("h1");
  await settled(page);
  assert.match(await page.locator(".top").innerText(), /guestling/);
  await page.goto(`${url}#/topics`);
  await settled(page);
  const create = page.getByRole("button", { name: "New topic" }).first();
  if (await create.count()) {
    await create.click();
    await page.fill("#field-topic", "NotMine");
    await page.getByRole("button", { name: "Preview" }).click();
    await page.waitForSelector("dialog tbody tr, dialog .notice.bad");
    if (await page.locator("dialog footer").getByRole("button", { name: "Create" }).count()) {
      await page.locator("dialog footer").getByRole("button", { name: "Create" }).click();
      await page.waitForSelector("dialog .notice.bad");
    }
  }
  check({ mayRefuse: true });
  await close();
});
