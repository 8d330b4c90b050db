package report_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

func FuzzACursorOfGroupsIsOfItsListOnly(f *testing.F) {
	group := report.NewGroupCursor(search.GroupCursor{Value: 7, Signature: "a|b", Set: true}, time.UnixMicro(1).UTC())
	f.Add(group.Encode([]byte("list")), []byte("list"))
	f.Add("", []byte(nil))
	f.Add("////", []byte("x"))
	f.Fuzz(func(t *testing.T, text string, of []byte) {
		if c, err := report.DecodeGroupCursor(text, of); err == nil && c.Encode(of) != text {
			t.Errorf("groups: %q reads as %+v", text, c)
		}
	})
}
