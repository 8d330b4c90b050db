// Package intake reads adjudications from JSON: the lines of a file, the format that `recourse submit`
// takes and the demonstration ships with (Lines), and the body of a request, which is one object
// (ParseObject) or a list of them (Batch).
//
// One line is one object of at most MaxLine bytes:
//
//	{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","generation":1,
//	 "tenant":"northwind","escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},
//	 "held":{"minor":50000,"currency":"USD"},"target":"escrow","payload":{},"simulate":["retryable","ok"]}
//
// An absent generation is 1, an absent target the default escrow service, an absent payload
// empty. simulate is an outcome or a list of outcomes that the demonstration's escrow service
// simulates; it is sent in the payload. Blank lines are skipped.
//
// The reader is strict, because a decision about money that is half understood is worse than
// a refused one. Errors that name the line and the field are: a member that is unknown, given
// twice or of another type, a number that is not whole, text that is not UTF-8 or has half of
// a surrogate pair, and anything after the object. After a bad line the reader goes on with
// the next one.
//
// It submits nothing. Lines keeps one line at a time in memory, Batch all items of a list.
package intake
