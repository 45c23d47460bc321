import { defineConfig } from "vitest/config";

// Pairings take a while on a busy machine.
export default defineConfig({ test: { testTimeout: 60_000, include: ["test/*.test.ts"] } });
