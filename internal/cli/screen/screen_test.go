package screen

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// terminalControls are characters that terminals interpret or that are invisible.
var terminalControls = []string{"\x1b[2J", "\a", "\u009b31m", "\u202euser:ada", "user:ada\u200b", "\u2066x\u2069", "\u00ad", "\U000e0041", "\ufeff", "a\rb", "\t", "\x7f"}

func TestTerminalControlsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, text := range terminalControls {
		for name, write := range map[string]func(*Screen){
			"title": func(s *Screen) { s.Title("%s", text) }, "text": func(s *Screen) { s.Text("%s", text) }, "command": func(s *Screen) { s.Command(text) },
		} {
			for _, color := range []bool{false, true} {
				var out bytes.Buffer
				write(&Screen{out: &out, width: defaultWidth, color: color})
				left := out.String()
				for _, own := range []string{bold, reset} {
					left = strings.ReplaceAll(left, own, "")
				}
				if strings.ContainsFunc(left, func(r rune) bool { return r != '\n' && isTerminalControl(r) }) {
					t.Errorf("%s of %q: %q", name, text, left)
				}
			}
		}
	}
}

func TestPlainJSONMeansTheSame(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(append(terminalControls, "plain", "\"q\\", "日本"))
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	plain := PlainJSON(text)
	if bytes.ContainsFunc(plain, func(r rune) bool { return r != '\n' && isTerminalControl(r) }) {
		t.Errorf("%q", plain)
	}
	var want, got []string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(plain, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %q", err, got)
	}
}
