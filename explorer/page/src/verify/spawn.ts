import VerifierWorker from "./worker.ts?worker";

/** The verifier as a file of its own, which a strict content policy asks for. */
export const spawn = (): Worker => new VerifierWorker();
