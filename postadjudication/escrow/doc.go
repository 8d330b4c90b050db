// Package escrow is the port to escrow services: what an executor is called with, what it
// answers, and what it may state about its service besides.
//
// # Promise
//
// Every attempt of a run has the same Request under the same OperationKey, so that a service
// that recognises keys can't pay twice. Of an Answer only the class decides about money:
// Executed is believed, NotExecuted permits another call, Unknown never does, unless the service
// still recognises the key.
//
//	postadjudication ──▶ Executor.Execute(Call) ──▶ Answer
//	                 ──▶ Lookuper.Lookup(Call)  ──▶ Answer
//
// # Dependencies
//
// It uses the words of background and settlement. It knows no HTTP (see escrowhttp), no journal and
// no case.
package escrow
