package testkit

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Example is the testing.TB of an Example function, which is given none. What would fail a test panics.
type Example struct {
	testing.TB // nil: only the methods below may be called
	cleanups   []func()
}

// NewExample returns a testing.TB for an Example function, which must call Stop.
func NewExample() *Example { return &Example{} }

// Stop calls the functions given to Cleanup, the last first.
func (e *Example) Stop() {
	for len(e.cleanups) > 0 {
		last := e.cleanups[len(e.cleanups)-1]
		e.cleanups = e.cleanups[:len(e.cleanups)-1]
		last()
	}
}

// Cleanup keeps a function for Stop.
func (e *Example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

// Context returns a context that does not end.
func (e *Example) Context() context.Context { return context.Background() }

// Helper does nothing.
func (e *Example) Helper() {}

// Name returns the same name for each example.
func (e *Example) Name() string { return "Example" }

// Error panics.
func (e *Example) Error(a ...any) { panic(fmt.Sprint(a...)) }

// Errorf panics.
func (e *Example) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// Fatal panics.
func (e *Example) Fatal(a ...any) { panic(fmt.Sprint(a...)) }

// Fatalf panics.
func (e *Example) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// Logf writes to standard error.
func (e *Example) Logf(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
