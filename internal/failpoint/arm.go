package failpoint

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// EnvVariable is the environment variable whose value test workers pass to Arm.
const EnvVariable = "RECOURSE_FAILPOINT"

// armedPoint is the armed point; there is at most one.
type armedPoint struct {
	point     string
	remaining atomic.Int64 // passes until it fires
	action    func()
}

var armed atomic.Pointer[armedPoint]

// Hit passes a point. On the armed pass of the armed point, the process ends or freezes here.
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

// Arm arms the point in text: "<point>", or "<point>:<n>" for its nth pass. It ends the process
// with SIGKILL; with the prefix "stop=" it freezes the process with SIGSTOP, once. An empty
// text disarms. Programs for users must not call it.
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
		return nil, fmt.Errorf("failpoint: %q is not <moment>:<subject>[:<nth>]", text)
	}
	t.remaining.Store(n)
	return t, nil
}
