import { defineConfig } from "vite";

// Everything that the page needs is in `dist`; it asks no other host for anything, and has no
// inline script or style, so that the server's content policy can refuse them.
export default defineConfig({
  base: "./",
  define: { __STANDALONE__: "false" },
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  // `npm run dev` before an explorer that runs already.
  server: { proxy: { "/v1": process.env["EXPLORER"] ?? "http://127.0.0.1:26680" } },
});
