package failpoint

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// EnvVariable is the environment variable that test workers hand to Arm.
const EnvVariable = "RECOURSE_FAILPOINT"

// armedPoint is the one point that is armed.
type armedPoint struct {
	point     string
	remaining atomic.Int64 // passes until it springs
	action    func()
}

var armed atomic.Pointer[armedPoint]

// Hit passes a point. If it is the armed one, and passed often enough, the process
// ends or freezes here.
func Hit(m Moment, subject string) {
	if t := armed.Load(); t != nil {
		t.pass(m, subject)
	}
}

func (t *armedPoint) pass(m Moment, subject string) {
	if Point(m, subject) == t.point && t.remaining.Add(-1) == 0 {
		t.action()
	}
}

// Arm sets the trap that a text asks for: "<point>", "<point>:<n>" for its nth
// pass, and before either "stop=" to freeze with SIGSTOP, once, instead of ending
// with SIGKILL. An empty text disarms. Not for programs that people run.
func Arm(text string) error {
	if text == "" {
		armed.Store(nil)
		return nil
	}
	t, err := parse(text)
	if err != nil {
		return err
	}
	armed.Store(t)
	return nil
}

func parse(text string) (*armedPoint, error) {
	name, stops := strings.CutPrefix(text, "stop=")
	t := &armedPoint{point: name, action: kill}
	if stops {
		t.action = freeze
	}
	parts := strings.Split(name, ":")
	n := int64(1)
	if len(parts) == 3 {
		var err error
		if n, err = strconv.ParseInt(parts[2], 10, 32); err != nil || n < 1 {
			return nil, fmt.Errorf("failpoint: %q: passes are counted from 1", text)
		}
		t.point = parts[0] + ":" + parts[1]
	}
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return nil, fmt.Errorf("failpoint: %q is not <moment>:<what>[:<nth>]", text)
	}
	t.remaining.Store(n)
	return t, nil
}
