package door_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// After a reset every door of a process means the same tenant, with a key and without.
func TestAllDoorsMeanTheTenantOfTheReset(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	test := &door.TestMode{}
	shared, err := door.New(door.Config{Service: f.service, Keyless: &door.Keyless{Tenant: "acme"}, Test: test})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.Stop)
	pages := http.NewServeMux()
	for _, prefix := range []string{"/one", "/two"} {
		mux := shared.NewMux(plain)
		mux.Handle("GET "+prefix+"/read", door.Route{Action: access.Read}, func(w http.ResponseWriter, _ *http.Request, c door.Caller, _ []byte) error {
			_, err := io.WriteString(w, c.Tenant)
			return err
		})
		pages.Handle(prefix+"/", mux)
	}
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	f.server.URL = server.URL
	for n := range 3 {
		want := "acme"
		if n > 0 {
			test.Reset()
			want = fmt.Sprintf("acme.%d", n)
		}
		for _, path := range []string{"/one/read", "/two/read"} {
			for _, key := range []string{"", f.auditor} {
				if status, text, _ := f.ask(key, "GET", path, ""); status != http.StatusOK || text != want {
					t.Errorf("after %d resets %s means %q (%d), want %q", n, path, text, status, want)
				}
			}
		}
		if got := test.Tenant(want); got != want {
			t.Errorf("a key that was made after the reset means %q", got)
		}
	}
	if got := test.Tenant(postadjudication.AllTenants); got != postadjudication.AllTenants {
		t.Errorf("all tenants are %q", got)
	}
}
