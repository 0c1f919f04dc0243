// Makes the pictures of docs/console.md anew: each page, of a large cluster with canned answers.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PAGES, ROOT, openTab, settled, startBrowser, startCanned, stopBrowser, visit } from "./harness.mjs";

const FOLDER = join(ROOT, "docs", "console");
const BYTES_MAX = 1_500_000;
/** Picture -> page of the harness, and what is done there before. */
const PICTURES = {
  "overview": ["overview"], "overview-dark": ["overview", { colorScheme: "dark" }], "overview-chinese": ["overview", { locale: "zh-CN" }],
  "overview-phone": ["overview", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 1 }],
  "broker-group": ["broker-group"], "topics": ["topics"], "topic": ["topic"], "consumers": ["consumers"], "consumer-group": ["consumer-group"], "client": ["client"],
  "search": ["found"], "message": ["message"], "dead-letters": ["dead-letters"], "delayed": ["delayed"], "trace": ["trace"], "clients": ["clients"],
  "access": ["access", {}, ask], "configuration": ["configuration"], "log": ["log"], "audit": ["audit"], "resend": ["dead-letters", {}, resend],
};

async function ask(page) {
  await page.selectOption("#field-access_key", "shop");
  await page.fill("#field-name", "orders-eu-0016");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.waitForSelector(".notice.ok, .notice.bad");
}

async function resend(page) {
  await page.getByRole("button", { name: "Resend all…" }).click();
  await page.getByRole("button", { name: "Preview" }).click();
  await page.waitForSelector("dialog tbody tr");
  await page.getByRole("button", { name: "Resend", exact: true }).click();
  await page.waitForSelector("dialog .notice[role=status]", { timeout: 20_000 });
}

/** The browser itself packs a picture smaller than PNG does. */
async function packed(page, png) {
  const address = await page.evaluate(async (data) => {
    const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const canvas = Object.assign(document.createElement("canvas"), { width: picture.width, height: picture.height });
    canvas.getContext("2d").drawImage(picture, 0, 0);
    return canvas.toDataURL("image/webp", 0.88);
  }, png.toString("base64"));
  return Buffer.from(address.split(",")[1], "base64");
}

const browser = await startBrowser();
const server = await startCanned({ CANNED_HOSTILE: "0" });
const packer = await (await browser.newContext()).newPage();
await rm(FOLDER, { recursive: true, force: true });
await mkdir(FOLDER, { recursive: true });
let total = 0;
for (const [name, [place, options = {}, act]] of Object.entries(PICTURES)) {
  const tab = await openTab({ viewport: { width: 1280, height: 800 }, ...options });
  await visit(tab.page, server.url, PAGES[place]);
  if (act) await act(tab.page);
  await settled(tab.page);
  const picture = await packed(packer, await tab.page.screenshot());
  await writeFile(join(FOLDER, `${name}.webp`), picture);
  total += picture.length;
  tab.check();
  await tab.close();
}
server.stop();
await stopBrowser();
console.log(`${Object.keys(PICTURES).length} pictures in docs/console, ${Math.round(total / 1000)} kB`);
if (total > BYTES_MAX) throw new Error(`more than ${BYTES_MAX} bytes`);
