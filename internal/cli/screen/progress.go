package screen

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far long work is. On anything but a terminal it shows
// nothing.
type Progress struct{ bar *progressbar.ProgressBar }

// NewProgress begins a bar. With total below 0 it is unknown how much there is.
func NewProgress(out io.Writer, what string, total int) *Progress {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &Progress{}
	}
	return &Progress{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(fmt.Sprintf("%-22s", what)), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(28), progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
	)}
}

// At says how much is done.
func (p *Progress) At(done int) error {
	if p.bar == nil {
		return nil
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
