//go:build unix

package failpoint

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		point string
		left  int64
	}{
		"journal.before:attempt-started":        {"journal.before:attempt-started", 1},
		"journal.after:open:3":                  {"journal.after:open", 3},
		"stop=call.before:executor":             {"call.before:executor", 1},
		"stop=call.before:executor:2147483647":  {"call.before:executor", 2147483647},
		"":                                      {},
		"open":                                  {},
		":open":                                 {},
		"journal.before:":                       {},
		"journal.before:open:0":                 {},
		"journal.before:open:-1":                {},
		"journal.before:open:often":             {},
		"journal.before:open:99999999999999999": {},
		"journal.before:open:1:2":               {},
	} {
		got, err := parse(text)
		if want.left == 0 {
			if err == nil {
				t.Errorf("%q: armed %q", text, got.point)
			}
			continue
		}
		if err != nil || got.point != want.point || got.remaining.Load() != want.left {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestAnArmedPointFiresOnceAtItsPass(t *testing.T) {
	t.Parallel()
	point, err := parse("journal.after:open:3")
	if err != nil {
		t.Fatal(err)
	}
	fired := 0
	point.action = func() { fired++ }
	for pass, want := range []int{0, 0, 1, 1, 1} {
		point.pass(JournalBefore, Open)
		point.pass(JournalAfter, Open)
		if fired != want {
			t.Errorf("pass %d: fired %d times, want %d", pass+1, fired, want)
		}
	}
}

const child = "FAILPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		if err := Arm(os.Getenv(EnvVariable)); err != nil {
			os.Exit(2)
		}
		for range 3 {
			Hit(CallBefore, Executor)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAnArmedProcessIsKilledAndOthersPass(t *testing.T) {
	t.Parallel()
	for text, killed := range map[string]bool{
		"":                         false,
		"call.before:executor":     true,
		"call.before:executor:3":   true,
		"call.before:executor:4":   false,
		"call.after:executor":      false,
		"journal.before:executor":  false,
		"call.before:executor:1":   true,
		"journal.before:submitted": false,
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1", EnvVariable+"="+text)
		err := cmd.Run()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || (status.Signaled() && status.Signal() == syscall.SIGKILL) != killed || !killed && err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func BenchmarkUnarmed(b *testing.B) {
	for b.Loop() {
		Hit(JournalBefore, Open)
	}
}
