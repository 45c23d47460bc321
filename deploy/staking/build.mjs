// Compiles QuorateStaking.sol into QuorateStaking.json; with --check, tells whether the committed file is what it
// compiles to.
import { readFileSync, writeFileSync } from "node:fs";
import solc from "solc";

const here = (name) => new URL(name, import.meta.url);
const source = "QuorateStaking.sol";
const settings = {
  optimizer: { enabled: true, runs: 200 },
  // The oldest one that is still common: the bytecode then runs on every chain of this kind.
  evmVersion: "paris",
  // No hash of the source at the end, so that a change of a comment changes no bytecode.
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
};
const input = {
  language: "Solidity",
  sources: { [source]: { content: readFileSync(here(source), "utf8") } },
  settings,
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
for (const { formattedMessage } of output.errors ?? []) {
  console.error(formattedMessage);
}
if (output.errors?.length) {
  process.exit(1);
}
const { abi, evm } = output.contracts[source].QuorateStaking;
const { optimizer, evmVersion } = settings;
const built = {
  compiler: solc.version(),
  settings: { optimizer, evmVersion },
  abi,
  bytecode: `0x${evm.bytecode.object}`,
};
const text = `${JSON.stringify(built, null, 1)}\n`;
const file = here("QuorateStaking.json");
if (process.argv.includes("--check")) {
  if (readFileSync(file, "utf8") !== text) {
    console.error("QuorateStaking.json is not what QuorateStaking.sol compiles to: npm run build");
    process.exit(1);
  }
} else {
  writeFileSync(file, text);
}
console.log(`${(built.bytecode.length - 2) / 2} bytes`);
