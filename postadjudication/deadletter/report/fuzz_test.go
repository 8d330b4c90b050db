package report

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

func FuzzACursorOfGroupsIsOfItsListOnly(f *testing.F) {
	group := groupCursor{place: search.GroupPosition{Value: 7, Signature: "a|b", Set: true}, asOf: time.UnixMicro(1).UTC()}
	f.Add(group.encode([]byte("list")), []byte("list"))
	f.Add("", []byte(nil))
	f.Add("////", []byte("x"))
	f.Fuzz(func(t *testing.T, text string, of []byte) {
		if c, err := decodeGroupCursor(text, of); err == nil && c.encode(of) != text {
			t.Errorf("groups: %q reads as %+v", text, c)
		}
	})
}
