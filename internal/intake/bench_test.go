package intake_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/intake"
)

func BenchmarkOne(b *testing.B) {
	for name, text := range map[string]string{
		"plain":   with(""),
		"payload": with(`,"payload":{"note":"paid by hand","items":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}],"ref":"01939123-4567-7123-8446-655440000000"}`),
		"large":   with(`,"payload":{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"sku":"a-1","count":2},`, 500), ",") + `]}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, wrong := intake.ParseObject([]byte(text), "acme"); len(wrong) > 0 {
					b.Fatal(wrong)
				}
			}
		})
	}
}
