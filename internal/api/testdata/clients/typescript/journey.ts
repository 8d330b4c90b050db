// A client that openapi-typescript generates takes an adjudication from its failure to settled.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Problem = components["schemas"]["Problem"];

const [url, submitter, operator] = process.argv.slice(2);
if (!url || !submitter || !operator) throw new Error("journey URL SUBMITTER OPERATOR");

const clientOf = (key: string) => createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const service = clientOf(submitter);
const people = clientOf(operator);

/** ok returns what was answered, and fails with the problem that was answered instead. */
function ok<T>(answer: { data?: T; error?: Problem }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

/** ended returns the state of a run that has ended. */
async function ended(run: string): Promise<string> {
  for (;;) {
    const { state } = ok(await service.GET("/api/v1/runs/{run}", { params: { path: { run } } }));
    if (state === "succeeded" || state === "dead_lettered") return state;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const made = ok(
  await service.POST("/api/v1/adjudications", {
    body: {
      transaction_receipt_id: "txr_typescript",
      submission_receipt_id: "sub_typescript",
      adjudication_id: "adj_typescript",
      escrow_reference: "escrow_typescript",
      outcome: "release",
      amount: { minor: 1000, currency: "USD" },
      held: { minor: 1000, currency: "USD" },
      simulate: ["refused", "ok"],
    },
  }),
);
const first = await ended(made.run_id);

const { letters } = ok(await people.GET("/api/v1/dead-letters", { params: { query: { transaction_receipt_id: "txr_typescript" } } }));
const letter = letters[0];
if (letter === undefined || letter.run_id !== made.run_id) throw new Error(JSON.stringify(letters));

const fork = ok(
  await people.POST("/api/v1/dead-letters/{run}/fork", {
    params: { path: { run: letter.run_id }, header: { "Idempotency-Key": "typescript-1" } },
    body: { reason: "the account was mended" },
  }),
);
const second = await ended(fork.run_id);

const again = await people.POST("/api/v1/dead-letters/{run}/fork", { params: { path: { run: letter.run_id } }, body: { reason: "again" } });
const trail = ok(await people.GET("/api/v1/cases/{case}/receipts", { params: { path: { case: fork.case_id }, query: { verify: true } } }));

console.log(
  JSON.stringify({
    states: [first, second],
    parent: fork.parent_run_id === made.run_id,
    refused: again.error?.code,
    receipts: trail.receipts.map((r) => r.subtype),
    verified: trail.verification?.ok,
  }),
);
