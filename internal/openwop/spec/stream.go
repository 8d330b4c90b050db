package spec

import (
	"slices"
	"strings"
)

// Mode is a filter of a stream: which events of a log it shows, and as what.
type Mode string

// The modes.
const (
	Updates  Mode = "updates"  // what changes the state of the run or ends its node
	Values   Mode = "values"   // a snapshot of the run after each of these, and after each start of the node
	Messages Mode = "messages" // output of language models, which this host has none of
	Debug    Mode = "debug"    // everything
)

// Modes are the modes, in the order in which refusals list them.
var Modes = []Mode{Updates, Values, Messages, Debug}

// updateTypes are the events of the mode updates. run.dead_lettered is newer than OpenWOP's table of
// modes; its readers expect it before the stream ends.
var updateTypes = []string{RunStarted, NodeCompleted, NodeFailed, RunDeadLettered, RunCompleted, RunFailed, RunCancelled}

// Shows reports whether a mode shows an event.
func (m Mode) Shows(e Event) bool {
	switch m {
	case Debug:
		return true
	case Updates:
		return slices.Contains(updateTypes, e.Type)
	case Values:
		return e.Type == NodeStarted || slices.Contains(updateTypes, e.Type)
	}
	return false
}

// ParseModes reads the parameter streamMode: one mode, or several with commas between them, of which none
// is Values. Empty is Updates. The error is an *Error.
func ParseModes(text string) ([]Mode, error) {
	if text == "" {
		return []Mode{Updates}, nil
	}
	var out []Mode
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(Modes, Mode(name)) {
			return nil, unsupportedMode("this host has no such stream mode")
		}
		if !slices.Contains(out, Mode(name)) {
			out = append(out, Mode(name))
		}
	}
	if len(out) > 1 && slices.Contains(out, Values) {
		return nil, unsupportedMode("the stream mode values can't be combined with others")
	}
	return out, nil
}

func unsupportedMode(message string) *Error {
	return &Error{Status: 400, Code: "unsupported_stream_mode", Message: message, Details: map[string]any{"supported": Modes}}
}
