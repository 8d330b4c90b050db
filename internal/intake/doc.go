// Package intake reads adjudications from JSON lines, the format that `recourse
// submit` takes and the demonstration ships with.
//
// One line is one object of at most MaxLine bytes:
//
//	{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","generation":1,
//	 "tenant":"northwind","escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},
//	 "held":{"minor":50000,"currency":"USD"},"target":"escrow","payload":{},"simulate":["retryable","ok"]}
//
// generation is 1, target the default escrow service and payload empty when they
// are left out. simulate is a word or a list of words for an escrow service that
// misbehaves on request, and travels in the payload. Lines of nothing but white
// space are passed over.
//
// The reader is strict, for a decision about money that is half understood is
// worse than one refused: a member that is unknown, repeated or of another type,
// a number that is not whole, text that is not UTF-8 or has half of a surrogate
// pair, and anything after the object are errors that name the line and the field. A bad line stops nothing;
// those after it are read.
//
// The package may import postadjudication, settlement, internal/strictjson and internal/redact. It submits nothing, and
// holds one line at a time.
package intake
