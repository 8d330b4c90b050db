package screen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress is a progress bar. It shows nothing unless the writer is a terminal.
type Progress struct {
	bar   *progressbar.ProgressBar
	what  string
	total int
}

// NewProgress returns a progress bar. A negative total means that the total is unknown.
func NewProgress(out io.Writer, what string, total int) *Progress {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &Progress{}
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(28),
		progressbar.OptionThrottle(50 * time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
	}
	if total >= 0 {
		options = append(options, progressbar.OptionShowCount())
	}
	return &Progress{bar: progressbar.NewOptions(total, options...), what: what, total: total}
}

// At shows how much is done.
func (p *Progress) At(done int) error {
	if p.bar == nil {
		return nil
	}
	if p.total < 0 {
		p.bar.Describe(fmt.Sprintf("%s, line %d", p.what, done))
	}
	return p.bar.Set(done)
}

// End removes the bar.
func (p *Progress) End() error {
	if p.bar == nil {
		return nil
	}
	return p.bar.Finish()
}

// Stages is a progress bar for work in several parts. It shows nothing unless the writer is a
// terminal. The zero value shows nothing.
type Stages struct {
	out  io.Writer
	bar  *Progress
	part string
	err  error // the first error of the bar; it does not stop the work
}

// NewStages returns Stages that show a bar from the first call of At.
func NewStages(out io.Writer) *Stages { return &Stages{out: out} }

// At shows the current part, and how much of the total is done.
func (p *Stages) At(part string, done, of int) {
	if p.bar == nil {
		p.bar, p.part = NewProgress(p.out, part, max(of, 1)), part
	}
	if p.bar.bar == nil {
		return
	}
	if part != p.part {
		p.bar.bar.Describe(part)
		p.part = part
	}
	if err := p.bar.bar.Set(min(done, of)); p.err == nil {
		p.err = err
	}
}

// End removes the bar, and returns the first error of the bar.
func (p *Stages) End() error {
	if p.bar == nil {
		return nil
	}
	return errors.Join(p.err, p.bar.End())
}
