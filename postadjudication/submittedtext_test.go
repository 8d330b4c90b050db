package postadjudication

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Who logs what became of a submission logs nothing that was handed over.
func TestASubmissionIsPrintedWithoutWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := release(1)
	a.Payload = json.RawMessage(`{"note":"geheim"}`)
	s := r.mustSubmit(a)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{s, &s, []any{s}} {
			text := fmt.Sprintf(format, value)
			if strings.Contains(text, "geheim") || strings.Contains(text, "103 101 104") || strings.Contains(text, "Payload") || strings.Contains(text, "0x67, 0x65") {
				t.Errorf("%s of %T: %s", format, value, text)
			}
		}
	}
	if text := s.String(); !strings.Contains(text, s.Run.String()) || !strings.Contains(text, "created") {
		t.Error(text)
	}
}
