package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recourse-dev/recourse/receipts"
)

func readHeads(name string) (map[receipts.CaseID]receipts.Head, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	heads, err := receipts.ParseHeads(text)
	if err != nil {
		return nil, &exit{exitUsage, fmt.Errorf("%s: %w", name, err)}
	}
	return heads, nil
}

// writeHeads replaces a file at once, so that a crash leaves the old or the new.
func writeHeads(name string, heads map[receipts.CaseID]receipts.Head) (err error) {
	text, err := receipts.FormatHeads(heads)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".heads-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
