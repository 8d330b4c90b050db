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
	// limit is within what the loss of a guard must be seen.
	limit = 90 * time.Second
	// buildLimit is for a build, which is not counted.
	buildLimit = 10 * time.Minute
	// binaryName is what a build makes.
	binaryName = "catcher"
)

// verdict is what became of one guard.
type verdict string

const (
	caught    verdict = "caught"
	missed    verdict = "NOT CAUGHT"
	unbuilt   verdict = "DOES NOT BUILD"
	unstarted verdict = "IS NOT THERE"
	endless   verdict = "DOES NOT END"
	redAnyway verdict = "RED ANYWAY"
)

// prover builds and runs in a directory of its own.
type prover struct {
	root  string
	dir   string
	env   []string
	tell  io.Writer
	green map[string]verdict // of what catches, as the product is
}

// Run takes the guards away whose name contains one of the parts of only, which | parts,
// one after the other, and reports whether each was caught. The table goes to out, the progress to tell.
func Run(ctx context.Context, out, tell io.Writer, only string) (ok bool, err error) {
	p := &prover{tell: tell, green: map[string]verdict{}}
	if p.root, err = moduleRoot(ctx); err != nil {
		return false, err
	}
	if p.dir, err = os.MkdirTemp("", "recourse-prove-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	server, err := localpg.Start(ctx, localpg.Options{MaxConnections: 300})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	p.env = append(os.Environ(), "RECOURSE_DATABASE_URL="+server.AppURL("postgres"), "RECOURSE_OWNER_DATABASE_URL="+server.URL("postgres"))

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
		if g.Double != "" {
			name += " (with its double: " + g.Double + ")"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\n", name, g.By, took.Seconds(), v)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(out, "%d of %d guards were caught, in %.0f minutes\n", found, tried, time.Since(began).Minutes())
	return found == tried && tried > 0, err
}

// prove takes one guard away.
func (p *prover) prove(ctx context.Context, g Guard) (verdict, time.Duration, error) {
	v, seen := p.green[g.By.String()]
	if !seen {
		how, err := p.try(ctx, g.By, "")
		if err != nil {
			return "", 0, err
		}
		if v = redAnyway; how.passed {
			v = caught
		}
		if how.verdict != "" {
			v = how.verdict
		}
		p.green[g.By.String()] = v
		p.say(g.Name, "as the product is", v != caught, how)
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
	how, err := p.try(ctx, g.By, overlay)
	if err != nil {
		return "", 0, err
	}
	v = missed
	switch {
	case how.verdict != "":
		v = how.verdict
	case how.failed:
		v = caught
	}
	p.say(g.Name, string(v), v != caught, how)
	return v, how.took, nil
}

func (p *prover) say(guard, what string, loud bool, how outcome) {
	_, _ = fmt.Fprintf(p.tell, "%-60s %6.1fs  %s\n", guard, how.took.Seconds(), what)
	if loud {
		_, _ = fmt.Fprintln(p.tell, how.said)
	}
}

// outcome is how a try ended.
type outcome struct {
	passed, failed bool
	verdict        verdict // why it says nothing; "" when it says something
	took           time.Duration
	said           string
}

// try builds what catches, with an overlay or without, and runs it.
func (p *prover) try(ctx context.Context, c Catch, overlay string) (outcome, error) {
	binary := filepath.Join(p.dir, binaryName)
	args := []string{"test", "-c", "-o", binary}
	if c.Test == "" {
		args = []string{"build", "-o", binary}
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	target := c.Package
	if c.Test == "" {
		target = "./internal/chaos"
	}
	_, said, err := p.command(ctx, buildLimit, p.root, "go", append(args, target)...)
	switch {
	case errors.Is(err, errExit):
		return outcome{verdict: unbuilt, said: said}, nil
	case err != nil:
		return outcome{}, err
	}
	run := c.Seed
	if c.Test != "" {
		run = []string{"-test.v", "-test.count", "1", "-test.run", exact(c.Test)}
	}
	took, said, err := p.command(ctx, limit, filepath.Join(p.root, target), binary, run...)
	o := outcome{took: took, said: said, passed: err == nil, failed: errors.Is(err, errExit)}
	switch {
	case errors.Is(err, errLimit):
		o.verdict = endless
	case err != nil && !o.failed:
		return outcome{}, err
	case c.Test != "" && !strings.Contains(said, "=== RUN   "+c.Test):
		o.verdict = unstarted
	case c.Test == "" && o.failed && !strings.Contains(said, "BROKEN"):
		o.verdict = unstarted
	}
	return o, nil
}

// exact is the pattern of a test, or a subtest, and no other.
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

// command runs a program in a process group of its own and keeps the end of what it says.
func (p *prover) command(ctx context.Context, limit time.Duration, dir, name string, args ...string) (time.Duration, string, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, p.env, &said, &said
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
	return took, said.String(), err
}

// moduleRoot is where the module's go.mod is.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	file := strings.TrimSpace(string(out))
	if err == nil && filepath.Base(file) != "go.mod" {
		err = fmt.Errorf("prove: there is no module here: %s", file)
	}
	return filepath.Dir(file), err
}
