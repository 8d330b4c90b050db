// Package refusal has the reasons why an action on a run, a case or a dead letter is refused: the
// gates, and the errors that name them. The engine, the subjects of postadjudication and their
// callers share them, so that each refusal has one code, one text and one receipt.
//
// It promises that a *RefusedError means that nothing was changed, and that the text of a gate says
// what to do about it. It must not know the journal, any subject, or who asks.
package refusal
