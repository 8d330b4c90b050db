package receipts_test

import (
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/receipts"
)

var (
	drawText = rapid.OneOf(
		rapid.SampledFrom([]string{"", "\u2028\u2029", "\U0001F4B8", "\"\\/", "\b\t\n\f\r\x01\x1f\x7f", "<&>", "\uFEFF\uFFFD"}),
		rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r != 0 })),
	)
	drawInteger = rapid.OneOf(rapid.SampledFrom([]int64{0, receipts.MaxInteger, -receipts.MaxInteger}), rapid.Int64Range(-receipts.MaxInteger, receipts.MaxInteger))
	// The last digit is never 0, so that encoding/json prints six digits too.
	drawTime = rapid.Custom(func(t *rapid.T) time.Time {
		us := rapid.Int64Range(-62_135_596_800, 253_402_300_799).Draw(t, "s")*1_000_000 +
			rapid.Int64Range(0, 99_999).Draw(t, "us")*10 + rapid.Int64Range(1, 9).Draw(t, "digit")
		return time.UnixMicro(us).UTC()
	})
)

// fill draws every field of a struct, also those added later; a third stays zero.
func fill(t *rapid.T, v reflect.Value, always bool) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !always && rapid.IntRange(0, 2).Draw(t, name+" absent") == 0 {
			continue
		}
		switch p := f.Addr().Interface().(type) {
		case *string:
			*p = drawText.Draw(t, name)
		case *int, *int64:
			f.SetInt(drawInteger.Draw(t, name))
		case *bool:
			*p = rapid.Bool().Draw(t, name)
		case *time.Time:
			*p = drawTime.Draw(t, name)
		case *receipts.RunID:
			copy(p[:], rapid.SliceOfN(rapid.Byte(), len(p), len(p)).Draw(t, name))
		case *receipts.Failure:
			fill(t, f, false)
		case **receipts.SettlementSnapshot:
			*p = new(receipts.SettlementSnapshot)
			fill(t, f.Elem(), true)
		case **receipts.WebhookPosition:
			*p = new(receipts.WebhookPosition)
			fill(t, f.Elem(), true)
		default:
			t.Fatalf("no way to draw %s", f.Type())
		}
	}
}

func drawDraft(t *rapid.T) receipts.Draft {
	nonEmpty := drawText.Filter(func(s string) bool { return s != "" })
	d := receipts.Draft{
		Subtype: rapid.SampledFrom(receipts.KnownSubtypes()).Draw(t, "subtype"),
		Actor:   nonEmpty.Draw(t, "actor"),
		At:      drawTime.Draw(t, "at"),
		Run:     rapid.SampledFrom([]receipts.RunID{{}, runA, runB}).Draw(t, "run"),
	}
	fill(t, reflect.ValueOf(&d.Payload).Elem(), false)
	return d
}
