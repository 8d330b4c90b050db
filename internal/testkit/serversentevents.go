package testkit

import (
	"bufio"
	"io"
	"strings"
)

// SentEvent is one server-sent event.
type SentEvent struct{ ID, Event, Data string }

// ReadSentEvents calls each for the server-sent events of a stream, in order, until the stream ends or each reports
// that the reader leaves. It returns the error of a stream that did not end by itself.
func ReadSentEvents(stream io.Reader, each func(SentEvent) (leave bool)) error {
	var now SentEvent
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			now.ID = value
		case "event":
			now.Event = value
		case "data":
			now.Data = value
		case "": // the end of one, or a comment between two
			if now.Data != "" && each(now) {
				return nil
			}
			now = SentEvent{}
		}
	}
	return lines.Err()
}
