// Package postadjudication is the public API of Recourse: it accepts adjudicated escrow
// decisions, executes them, and reports what became of them.
//
// # Promise
//
// An adjudication that is answered Created is committed and will end as settled, refunded,
// partially settled, cancelled, or as an open dead letter for a person, whatever happens to
// this process, to Redis, or to the escrow service. No decision is executed under more than one
// operation key. A call whose outcome is unknown is repeated only under the same key, while the
// escrow service still knows it. State, money and evidence of each step are one commit.
//
//	Submit, SubmitTx, SubmitBatch ──▶ admission ──▶ journal: decide ──▶ notification
//	Run ──▶ background.Manager ──▶ SettlementFamily.Handle ──▶ escrow.Executor
//	                          └──▶ SettlementFamily.Record: Transition ──▶ settlement.Apply ──▶ journal
//	Status, Case, Receipts ◀── journal       AuditReader ──▶ package audit
//	Run ──▶ Prune: announce ──▶ archive ──▶ purged; Hold and Mark by hand, purges by plan
//	Fork, Retry ──▶ gates ──▶ journal ──▶ notification
//	Run ──▶ apply: rules ──▶ letters found ──▶ gates ──▶ fork, counted in the same commit, or mark
//	As(tenant, actor) ──▶ DeadLetters, Bulk, Rules, Cases, Breakers, Policies, People, References, Keys, Webhooks, OperationLogs
//	Bulk.Plan ──▶ letters with their heads ──▶ hash ──▶ Bulk.Run ──▶ one process ──▶ each once, guarded by its head
//	a death ──▶ the run of its LetterHandler, in the same commit
//	OnDeadLetter ◀── the order of events       Policies.Set ──▶ journal ──▶ new runs, within a second
//
// # Dependencies
//
// It alone opens the journal and, by internal/engine, the engine, and hands them to its subjects.
// None of them imports this package. Package
// refusal has the gates and errors that all share. It knows no HTTP: executors are passed in (see
// escrow and escrowhttp), and the HTTP API and the command line call this package, never the reverse.
package postadjudication
