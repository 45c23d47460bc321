// Builds the page as one HTML file that belongs to no server. Its policy names its own script and
// style by their hashes; it may ask the servers that its reader has listed, and nobody else can be
// asked by anything that a server sends.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = join(root, "dist-standalone");
const parts = join(out, "parts");

await build({
  root,
  logLevel: "warn",
  define: { __STANDALONE__: "true" },
  publicDir: false,
  resolve: { alias: [{ find: /^\.\/verify\/spawn\.ts$/, replacement: join(root, "src/verify/spawn-inline.ts") }] },
  build: { outDir: parts, emptyOutDir: true, cssCodeSplit: false },
  // Pages from files may not start workers that are modules.
  worker: { format: "iife" },
});

const assets = join(parts, "assets");
const read = (ending) => readdirSync(assets).filter((name) => name.endsWith(ending)).map((name) => readFileSync(join(assets, name), "utf8")).join("\n");
const script = read(".js").replaceAll("</script", "<\\/script");
const style = read(".css").trim();
const icon = `data:image/svg+xml;base64,${readFileSync(join(root, "public/favicon.svg")).toString("base64")}`;
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "worker-src blob:",
  "connect-src http: https:",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Quorate</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>
<noscript>This page verifies a chain in your browser, for which it needs JavaScript.</noscript>
<script type="module">${script}</script>
</body>
</html>
`;
rmSync(parts, { recursive: true });
mkdirSync(out, { recursive: true });
const file = join(out, "quorate-explorer.html");
writeFileSync(file, html);
const digest = createHash("sha256").update(html).digest("hex");
console.log(`${file}: ${html.length} bytes, ${gzipSync(html, { level: 9 }).length} compressed, SHA-256 ${digest}`);
