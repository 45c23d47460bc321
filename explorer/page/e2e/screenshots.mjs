// Pictures of every view: `npm run screenshots -- --binary PATH`. Written to docs/explorer, with few
// colours if pngquant is there.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Network, Proxy, openBrowser, option, page as folder, pause, until } from "./harness.mjs";

const binary = option("binary");
if (!binary || !existsSync(binary)) {
  console.error("npm run screenshots -- --binary PATH");
  process.exit(2);
}
const out = join(folder, "../../docs/explorer");
mkdirSync(out, { recursive: true });
// Validators are killed now and then, so that there are views without a block.
const network = new Network({ binary, scheme: "bls-aggregate", validators: 7, interval: "200ms", load: 60, port: 28_700, extra: ["--kill-every", "9s"] });
const proxy = new Proxy(network, network.port + 95);
const desk = { width: 1280, height: 860 };
const phone = { width: 390, height: 844 };

async function shoot(browser, name, path, { viewport = desk, colorScheme = "light", wait = 2_500, url, before, full = true } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, locale: "en" });
  const page = await context.newPage();
  await page.goto(url ?? `${proxy.url}#${path}`);
  await before?.(page);
  await page.waitForSelector('.strip-mark[data-mark="ok"]', { timeout: 60_000 });
  await page.waitForFunction(() => !/Loading…|Waiting for a proof|Verifying (in|this)/.test(document.querySelector("main").textContent), undefined, { timeout: 30_000 });
  await pause(wait);
  await page.evaluate(() => window.scrollTo(0, 0));
  const file = join(out, `${name}.png`);
  await page.screenshot({ path: file, fullPage: full });
  await context.close();
  try {
    execFileSync("pngquant", ["--force", "--ext", ".png", "--speed", "1", "128", file]);
  } catch {
    // As it is, then.
  }
  console.log(file);
}

async function findNullified() {
  const { data } = await network.api("/v1/blocks?limit=100");
  const views = new Set(data.map((block) => Number(block.view)));
  for (let view = Number(data[0].view); view > Number(data.at(-1).view); view--) {
    if (!views.has(view) && (await network.api(`/v1/views/${view}`)).state === "nullified") return view;
  }
  return 20;
}

let browser;
try {
  await network.start();
  await proxy.start();
  browser = await openBrowser();
  await until("some history", async () => Number((await network.api("/v1/status")).tip.height) > 150, 120_000);
  const full = await until("a block with transactions", async () => (await network.api("/v1/blocks?limit=50")).data.find((block) => block.transactions > 5));
  const [transaction] = (await network.api(`/v1/blocks/${full.height}/transactions`)).data;
  for (const colorScheme of ["light", "dark"]) {
    const shot = (name, path, options = {}) => shoot(browser, `${name}-${colorScheme}`, path, { colorScheme, ...options });
    await shot("live", "/", { wait: 9_000, full: false });
    await shot("block", `/block/${full.height}`);
    await shot("validators", "/validators");
  }
  await shoot(browser, "blocks-light", "/blocks");
  const nullified = await findNullified();
  await shoot(browser, "view-light", `/view/0.${nullified}`);
  await shoot(browser, "transaction-light", `/tx/${transaction.id}`);
  await shoot(browser, "account-dark", `/account/${transaction.sender}`, { colorScheme: "dark" });
  await shoot(browser, "faults-light", "/faults");
  await shoot(browser, "trust-light", "/trust", { wait: 5_000 });
  await shoot(browser, "live-phone", "/", { viewport: phone, wait: 7_000 });
  await shoot(browser, "block-phone", `/block/${full.height}`, { viewport: phone, colorScheme: "dark" });
  const other = await network.api(`/v1/blocks/${BigInt(full.height) - 1n}`);
  proxy.answer = (path, json) => (path === `/v1/blocks/${full.height}` ? { ...json, finality: other.finality } : undefined);
  await shoot(browser, "refused-light", `/block/${full.height}`);
  proxy.reset();
  const old = await network.api("/v1/blocks/40");
  proxy.answer = (path) => (path === "/v1/blocks/latest" ? old : undefined);
  await shoot(browser, "standalone-light", "", {
    url: pathToFileURL(join(folder, "dist-standalone", "quorate-explorer.html")).href,
    wait: 6_000,
    before: async (page) => {
      await page.setInputFiles("#trust-file", network.trustFile);
      await page.waitForSelector("text=from the file trust.json");
      for (const server of [network.explorerUrl, proxy.url]) {
        await page.fill("#server-address", server);
        await page.press("#server-address", "Enter");
        await page.waitForSelector(`[data-server="${server}"]`);
      }
    },
  });
} finally {
  await browser?.close();
  await proxy.stop().catch(() => {});
  await network.stop();
}
