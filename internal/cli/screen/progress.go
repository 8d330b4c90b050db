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

// Progress shows how far long work is. On anything but a terminal it shows
// nothing.
type Progress struct {
	bar   *progressbar.ProgressBar
	what  string
	total int
}

// NewProgress begins a bar. With total below 0 it is unknown how much there is.
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

// At says how much is done.
func (p *Progress) At(done int) error {
	if p.bar == nil {
		return nil
	}
	if p.total < 0 {
		p.bar.Describe(fmt.Sprintf("%s, line %d", p.what, done))
	}
	return p.bar.Set(done)
}

// End takes the bar away.
func (p *Progress) End() error {
	if p.bar == nil {
		return nil
	}
	return p.bar.Finish()
}

// Stages shows how far work of several parts is. On anything but a terminal it shows
// nothing; nor does its zero value.
type Stages struct {
	out  io.Writer
	bar  *Progress
	part string
	err  error // the first: a bar that can't be drawn ends no work
}

// NewStages begins no bar yet.
func NewStages(out io.Writer) *Stages { return &Stages{out: out} }

// At says which part is worked on, and how much of all is done.
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

// End takes the bar away, and tells what was wrong with it.
func (p *Stages) End() error {
	if p.bar == nil {
		return nil
	}
	return errors.Join(p.err, p.bar.End())
}
