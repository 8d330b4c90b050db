package prove

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Guard is a part of the product that keeps money or evidence safe.
type Guard struct {
	Name      string
	Edits     []Edit // the changes that remove it
	Redundant string // another guard of the same, which the edits remove as well; "" for none
	CaughtBy  Detector
}

// Edit removes a guard, or a part of it.
type Edit struct {
	File string // from the root of the module
	Text string // occurs exactly once in it
	With string
}

// Detector is what must fail: a test of a package, or a run of the chaos command.
type Detector struct {
	Package string // from the root of the module
	Test    string
	Seed    []string // flags of the chaos command, when there is no test
}

func (c Detector) String() string {
	if c.Test != "" {
		return strings.TrimPrefix(c.Package, "./") + " " + c.Test
	}
	return "chaos " + strings.Join(c.Seed, " ")
}

// apply returns a file's text without the guard.
func (e Edit) apply(text string) (string, error) {
	switch n := strings.Count(text, e.Text); {
	case e.Text == "" || e.Text == e.With:
		return "", errors.New("prove: an edit changes nothing")
	case n != 1:
		return "", fmt.Errorf("prove: %s has the text %d times, not once: %s", e.File, n, e.Text)
	}
	return strings.Replace(text, e.Text, e.With, 1), nil
}

// overlay writes the files without a guard into a directory, and the JSON file for go build
// -overlay. It returns the name of that file.
func (g Guard) overlay(root, dir string) (string, error) {
	texts := map[string]string{}
	for _, e := range g.Edits {
		if _, there := texts[e.File]; !there {
			raw, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return "", err
			}
			texts[e.File] = string(raw)
		}
		without, err := e.apply(texts[e.File])
		if err != nil {
			return "", err
		}
		texts[e.File] = without
	}
	return writeOverlay(root, dir, texts)
}

// writeOverlay writes files by their names from the root of the module into a directory, and the JSON file that has go
// build read them instead of the product's. It returns the name of that file.
func writeOverlay(root, dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, raw, 0o600)
}
