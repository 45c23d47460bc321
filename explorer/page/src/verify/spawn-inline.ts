import VerifierWorker from "./worker.ts?worker&inline";

/** The verifier out of the page itself, for the page that is one file. */
export const spawn = (): Worker => new VerifierWorker();
