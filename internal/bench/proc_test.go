package main

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 41 42 42 0 -1 4194304 100 200 0 0 7 3 20 10 20 0 1 0 99 1000 50"
	for _, name := range []string{"(postgres)", "(a b)", "(:) S 1 )", "()"} {
		got, err := parseStat("42 " + name + rest)
		if want := (stat{41, 100 * time.Millisecond, 300 * time.Millisecond}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, bad := range []string{"", "42", "42 (postgres)", "42 (postgres) S 41 42", "42 (x) S y 42 42 0 -1 0 0 0 0 0 7 3 20 10", "42 (x) S 1 42 42 0 -1 0 0 0 0 0 7 z 20 10"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q passed as %+v", bad, got)
		}
	}
}

func FuzzParseStatNeverGivesNegativeTimes(f *testing.F) {
	f.Add("42 (a b) S 41 42 42 0 -1 4194304 100 200 0 0 7 3 20 10 20 0")
	f.Add("")
	f.Add(")")
	f.Add("1 (x) S 1 1 1 0 -1 0 0 0 0 0 -7 3 99999999999999999 10 20 0")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStat(text)
		if err == nil && (s.own < 0 || s.children < 0) {
			t.Errorf("%q gives %+v", text, s)
		}
	})
}

func TestKilobytes(t *testing.T) {
	t.Parallel()
	const status = "Name:\tbench\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n"
	if got, err := kilobytes(status, "VmRSS"); err != nil || got != 1<<20 {
		t.Errorf("VmRSS = %d, %v", got, err)
	}
	for _, name := range []string{"VmSwap", "Threads", "Vm"} {
		if got, err := kilobytes(status, name); err == nil {
			t.Errorf("%s passed as %d", name, got)
		}
	}
}

func TestThisProcessIsMeasured(t *testing.T) {
	t.Parallel()
	now, peak, err := resident(os.Getpid())
	if err != nil || now <= 1<<20 || peak < now/2 {
		t.Errorf("resident %d, peak %d, %v", now, peak, err)
	}
	if own, err := anonymous(os.Getpid()); err != nil || own <= 1<<18 || own >= peak {
		t.Errorf("anonymous %d of at most %d, %v", own, peak, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // burn until the clock's tick shows it
		cpu, err := cpuOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		own, err := ownCPU()
		if err != nil {
			t.Fatal(err)
		}
		if cpu > 0 && own > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no CPU time after 10s of work: %v, %v", cpu, own)
		}
	}
	const none = 1 << 30 // above any pid
	if _, err := cpuOf(none); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}
