// The shapes of the explorer's answers, by the names that the page uses. They are generated
// (`make page-types`): what the server says differently does not compile here.

import type { components } from "./schema";

type Schemas = components["schemas"];

export type BlockSummary = Schemas["BlockSummary"];
export type Finality = Schemas["Finality"];
export type Block = Schemas["BlockDetail"];
export type BlockCertificate = Schemas["BlockCertificate"];
/** `role` is there in the list of an account. */
export type BlockTransaction = Schemas["BlockTransaction"] & Partial<Pick<Schemas["AccountTransaction"], "role">>;
export type TransactionAnswer = Schemas["TransactionDetail"];
export type TransactionProof = Schemas["TransactionProof"];
export type AccountAnswer = Schemas["AccountDetail"];
export type ViewAnswer = Schemas["ViewDetail"];
export type Evidence = Schemas["EvidenceItem"];
export type Validator = Schemas["ValidatorDetail"];
export type Validators = Schemas["ValidatorSet"];
export type Registry = Schemas["RegistryDetail"];
export type Quantiles = Schemas["Quantiles"];
export type Stats = Schemas["Stats"];
export type Upstream = Schemas["UpstreamStatus"];
export type Status = Schemas["Status"];
export type History = Schemas["History"];
export type SubmissionResults = Schemas["SubmissionResults"];
export type SearchHit = Schemas["SearchHit"];
export type Message = Exclude<Schemas["StreamEvent"], { type: "transaction" }>;

/** What all lists have in common. */
export interface Page<T> {
  data: T[];
  next: string | null;
  prev?: string | null;
  tip?: string;
  total?: number;
}
