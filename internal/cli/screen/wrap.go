package screen

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

var escapeSequences = regexp.MustCompile("\x1b\\[[0-9;]*m")

// displayWidth returns how many terminal cells a text takes.
func displayWidth(s string) int { return uniseg.StringWidth(escapeSequences.ReplaceAllString(s, "")) }

// wrap breaks a text into lines of at most width, between words where it can.
func wrap(s string, width int) []string {
	var lines []string
	for _, paragraph := range strings.Split(s, "\n") {
		lines = append(lines, wrapParagraph(paragraph, width)...)
	}
	return lines
}

func wrapParagraph(s string, width int) []string {
	if displayWidth(s) <= width {
		return []string{s}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case displayWidth(line)+1+displayWidth(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
		for displayWidth(line) > width {
			head := cut(line, width)
			lines, line = append(lines, line[:head]), line[head:]
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// cut returns how many bytes of a text fit into a width, at least one character. It prefers to cut
// after punctuation.
func cut(s string, width int) int {
	end := 0
	for end < len(s) {
		_, size := utf8.DecodeRuneInString(s[end:])
		if end > 0 && displayWidth(s[:end+size]) > width {
			break
		}
		end += size
	}
	if mark := strings.LastIndexAny(s[:end], "._-/:,;") + 1; mark > 0 && end < len(s) {
		return mark
	}
	return end
}
