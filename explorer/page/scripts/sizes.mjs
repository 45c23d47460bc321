// How large the build is, compressed. Scripts together may not exceed the limit.

import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 101_000;
const root = process.argv[2] ?? "dist";
let scripts = 0;
for (const name of readdirSync(root, { recursive: true }).map(String).sort()) {
  const path = join(root, name);
  if (!statSync(path).isFile()) continue;
  const content = readFileSync(path);
  const compressed = gzipSync(content, { level: 9 }).length;
  if (/\.(js|html)$/.test(name)) scripts += compressed;
  console.log(`${String(content.length).padStart(8)} ${String(compressed).padStart(8)}  ${name}`);
}
console.log(`script and markup, compressed: ${scripts} of ${LIMIT_BYTES} bytes`);
if (scripts > LIMIT_BYTES) process.exit(1);
