// Package postadjudication is the one public door of Recourse: it takes adjudicated
// escrow decisions, executes them, and answers what became of them.
//
// # Promise
//
// An adjudication that is answered Created is committed, and will end as settled,
// refunded, partially settled, cancelled, or as an open dead letter for a person,
// whatever happens to this process, to Redis, or to the escrow service. No decision
// is executed under more than one operation key, and a call whose outcome is
// unknown is repeated only under the same key, while the escrow service still knows
// it. State, money and evidence of each step are one commit.
//
//	Submit, SubmitTx, SubmitBatch ──▶ admission (pure) ──▶ journal ──▶ bell
//	Run ──▶ background.Manager ──▶ family.Handle ──▶ Executor
//	                          └──▶ family.Record: Move ──▶ settlement.Apply ──▶ journal
//	Status, Case, Receipts, Audit ◀── journal
//	Run ──▶ Prune: announce ──▶ archive ──▶ purged; Hold, Mark, Purge, Clear by hand
//	Fork, Retry ──▶ gates ──▶ journal ──▶ bell
//	Run ──▶ ApplyRules: rules ──▶ letters found ──▶ gates ──▶ fork, counted with it, or mark
//	PlanBulk ──▶ letters with their heads ──▶ hash ──▶ RunBulk ──▶ one process ──▶ each once, guarded by its head
//	a death ──▶ the run of its LetterHandler, in the same commit
//	OnDeadLetter ◀── the order of events       SetPolicy ──▶ journal ──▶ new runs, within a second
//
// # House
//
// May import background, settlement, receipts, retrypolicy, internal/postgres,
// internal/archive, internal/strictjson and internal/redact. It is the only package that opens the journal. It knows no HTTP:
// executors are handed in (see escrowhttp), faces call it and are not called.
package postadjudication
