package prove

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/recourse-dev/recourse/internal/localpg"
)

const (
	// runTimeout is within which a detector must fail. A wait that ends in vain takes two minutes of it.
	runTimeout = 150 * time.Second
	// buildTimeout is for a build, which is not part of runTimeout.
	buildTimeout = 10 * time.Minute
	// detectorBinary is the file name of a built detector.
	detectorBinary = "catcher"
	// noFailFile keeps tests that draw cases from writing those of a changed product beside the product's.
	noFailFile = "RAPID_NOFAILFILE=true"
)

// verdict is the result for one guard.
type verdict string

const (
	caught         verdict = "caught"
	missed         verdict = "NOT CAUGHT"
	unbuilt        verdict = "DOES NOT BUILD"
	notFound       verdict = "IS NOT THERE"
	timedOut       verdict = "DOES NOT END"
	alreadyFailing verdict = "RED ANYWAY"
)

// prover builds and runs detectors in a directory of its own.
type prover struct {
	root     string
	dir      string
	env      []string
	progress io.Writer
	baseline map[string]verdict // of detectors, with all guards
}

// newProver starts a Postgres of its own for the tests. stop ends it, and removes what was built.
func newProver(ctx context.Context, progress io.Writer) (p *prover, stop func() error, err error) {
	p = &prover{progress: progress, baseline: map[string]verdict{}}
	if p.root, err = moduleRoot(ctx); err != nil {
		return nil, nil, err
	}
	if p.dir, err = os.MkdirTemp("", "recourse-prove-"); err != nil {
		return nil, nil, err
	}
	server, err := localpg.Start(ctx, localpg.Options{MaxConnections: 300})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	p.env = append(os.Environ(), "RECOURSE_DATABASE_URL="+server.AppURL("postgres"), "RECOURSE_OWNER_DATABASE_URL="+server.URL("postgres"), noFailFile)
	return p, func() error { return errors.Join(server.Stop(), os.RemoveAll(p.dir)) }, nil
}

// Run removes the guards whose name contains one of the parts of only, which are separated by |,
// one after the other, and reports whether each was caught. It writes the table to out, and the
// progress to progress.
func Run(ctx context.Context, out, progress io.Writer, only string) (ok bool, err error) {
	p, stop, err := newProver(ctx, progress)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	began := time.Now()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "guard\tcaught by\tseconds\t")
	tried, found := 0, 0
	for _, g := range Guards {
		if !slices.ContainsFunc(strings.Split(only, "|"), func(part string) bool { return strings.Contains(g.Name, part) }) {
			continue
		}
		v, took, err := p.prove(ctx, g)
		if err != nil {
			return false, err
		}
		tried++
		if v == caught {
			found++
		}
		name := g.Name
		if g.Redundant != "" {
			name += " (with its double: " + g.Redundant + ")"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\n", name, g.CaughtBy, took.Seconds(), v)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(out, "%d of %d guards were caught, in %.0f minutes\n", found, tried, time.Since(began).Minutes())
	return found == tried && tried > 0, err
}

// prove removes one guard.
func (p *prover) prove(ctx context.Context, g Guard) (verdict, time.Duration, error) {
	v, seen := p.baseline[g.CaughtBy.String()]
	if !seen {
		result, err := p.try(ctx, g.CaughtBy, "")
		if err != nil {
			return "", 0, err
		}
		if v = alreadyFailing; result.passed {
			v = caught
		}
		if result.verdict != "" {
			v = result.verdict
		}
		p.baseline[g.CaughtBy.String()] = v
		p.report(g.Name, "as the product is", v != caught, result)
	}
	if v != caught {
		return v, 0, nil
	}
	dir, err := os.MkdirTemp(p.dir, "guard-")
	if err != nil {
		return "", 0, err
	}
	overlay, err := g.overlay(p.root, dir)
	if err != nil {
		return "", 0, err
	}
	result, err := p.try(ctx, g.CaughtBy, overlay)
	if err != nil {
		return "", 0, err
	}
	v = missed
	switch {
	case result.verdict != "":
		v = result.verdict
	case result.failed:
		v = caught
	}
	p.report(g.Name, string(v), v != caught, result)
	return v, result.took, nil
}

func (p *prover) report(guard, what string, verbose bool, result runResult) {
	_, _ = fmt.Fprintf(p.progress, "%-60s %6.1fs  %s\n", guard, result.took.Seconds(), what)
	if verbose {
		_, _ = fmt.Fprintln(p.progress, result.output)
	}
}

// runResult is the result of a try.
type runResult struct {
	passed, failed bool
	verdict        verdict // why the try proves nothing; "" when it is conclusive
	took           time.Duration
	output         string
}

// build builds a detector, with an overlay or without. The verdict of its result is "" if it compiles.
func (p *prover) build(ctx context.Context, c Detector, overlay, binary string) (runResult, error) {
	args, target := []string{"test", "-c", "-o", binary}, c.Package
	if c.Test == "" {
		args, target = []string{"build", "-o", binary}, "./internal/chaos"
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	_, output, err := p.command(ctx, buildTimeout, p.root, "go", append(args, target)...)
	if errors.Is(err, errExit) {
		return runResult{verdict: unbuilt, output: output}, nil
	}
	return runResult{}, err
}

// try builds a detector, with an overlay or without, and runs it.
func (p *prover) try(ctx context.Context, c Detector, overlay string) (runResult, error) {
	binary := filepath.Join(p.dir, detectorBinary)
	if r, err := p.build(ctx, c, overlay, binary); err != nil || r.verdict != "" {
		return r, err
	}
	target := c.Package
	if c.Test == "" {
		target = "./internal/chaos"
	}
	run := c.Seed
	if c.Test != "" {
		run = []string{"-test.v", "-test.count", "1", "-test.run", exact(c.Test)}
	}
	took, output, err := p.command(ctx, runTimeout, filepath.Join(p.root, target), binary, run...)
	o := runResult{took: took, output: output, passed: err == nil, failed: errors.Is(err, errExit)}
	switch {
	case errors.Is(err, errLimit):
		o.verdict = timedOut
	case err != nil && !o.failed:
		return runResult{}, err
	case c.Test != "" && !strings.Contains(output, "=== RUN   "+c.Test):
		o.verdict = notFound
	case c.Test == "" && o.failed && !strings.Contains(output, "BROKEN"):
		o.verdict = notFound
	}
	return o, nil
}

// exact returns the pattern of exactly one test or subtest.
func exact(test string) string {
	parts := strings.Split(test, "/")
	for i, name := range parts {
		parts[i] = "^" + name + "$"
	}
	return strings.Join(parts, "/")
}

var (
	errExit  = errors.New("prove: it ended with another code than 0")
	errLimit = errors.New("prove: it did not end in time")
)

// command runs a program in a process group of its own and returns the end of its output.
func (p *prover) command(ctx context.Context, limit time.Duration, dir, name string, args ...string) (time.Duration, string, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	var output bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.env, &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = errLimit
	case errors.As(err, &exit):
		err = errExit
	}
	return took, output.String(), err
}

// moduleRoot returns the directory of the module's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	file := strings.TrimSpace(string(out))
	if err == nil && filepath.Base(file) != "go.mod" {
		err = fmt.Errorf("prove: there is no module here: %s", file)
	}
	return filepath.Dir(file), err
}
