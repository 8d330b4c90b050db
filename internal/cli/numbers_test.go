package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/shell"
)

// allFlags calls visit with every flag of a command and of the commands below it.
func allFlags(cmd *cobra.Command, visit func(command string, f *pflag.Flag)) {
	each := func(f *pflag.Flag) { visit(cmd.CommandPath(), f) }
	cmd.Flags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
	for _, below := range cmd.Commands() {
		allFlags(below, visit)
	}
}

// A flag of a type that is in neither list fails this test: a new type says how it reads numbers.
func TestEveryFlagForANumberReadsPlainDecimalDigits(t *testing.T) {
	t.Parallel()
	whole := []string{"", " ", "010", "000012500", "0x30D4", "0X1F", "0b101", "0o17", "1_000", "+7", "-7", "7 ", " 7", "7.0", "1e3", "1,000", "７", "٧", "9223372036854775808"}
	wrong := map[string][]string{
		"int": whole, "int64": whole, "number": whole,
		"float64":  {"", "0x1p-2", "0x10", "1_0", "1_0.5", "+0.5", "-0.5", "00.5", ".5", "5.", "1e3", "inf", "Infinity", "NaN", "0,5", "０.5"},
		"duration": {"0x10s", "1_0s", "10", "1,5s", "１s"},
		"span":     {"0x10s", "1_0s", "10", "0x7d", "1_0d", "1e1d", "１d"},
		"sum":      {"12500", "000125.00EUR", "0x30D4EUR", "1_25.00EUR", "125EUR", "125.0EUR", "125.000EUR", "125,00EUR", "17,000EUR", "125.00eur", "125.00", "-125.00EUR", "+125.00EUR", "0.00EUR", "1.00JPY", "125.00EUR "},
	}
	right := map[string]string{"int": "7", "int64": "7", "number": "7", "float64": "0.25", "duration": "2s", "span": "7d", "sum": "125.00EUR"}
	others := regexp.MustCompile(`^(bool|string|stringArray|stringSlice)$`)
	checked := map[string]int{}
	allFlags(rootCommand(&shell.Shell{}), func(command string, f *pflag.Flag) {
		kind := f.Value.Type()
		if others.MatchString(kind) {
			return
		}
		if wrong[kind] == nil {
			t.Errorf("%s --%s has the type %s: say here how it reads numbers", command, f.Name, kind)
			return
		}
		checked[kind]++
		for _, text := range wrong[kind] {
			if err := f.Value.Set(text); err == nil {
				t.Errorf("%s --%s reads %q as %s", command, f.Name, text, f.Value)
			}
		}
		if err := f.Value.Set(right[kind]); err != nil || f.Value.String() == "" {
			t.Errorf("%s --%s %s: %v", command, f.Name, right[kind], err)
		}
	})
	for kind, least := range map[string]int{"int": 10, "int64": 10, "number": 20, "float64": 2, "duration": 5, "span": 5, "sum": 4} {
		if checked[kind] < least {
			t.Errorf("%d flags of the type %s were checked, of at least %d", checked[kind], kind, least)
		}
	}
}

// numberReaders are the files that read a number otherwise than by the type of a flag: the width of the terminal, the
// version of Postgres, and the one argument that is a number.
var numberReaders = map[string]bool{"screen/screen.go": true, "doctor/postgres.go": true, "people.go": true, "shell/numbers.go": true}

// A text flag or an argument that a command reads as a number would escape the test of the types.
func TestNoCommandReadsANumberFromText(t *testing.T) {
	t.Parallel()
	reads := regexp.MustCompile(`strconv\.(Atoi|Parse(Int|Uint|Float))|fmt\.Sscan`)
	found := 0
	err := filepath.WalkDir(".", func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if reads.Match(text) {
			if found++; !numberReaders[name] {
				t.Errorf("%s reads a number: let the type of a flag read it", name)
			}
		}
		return err
	})
	if err != nil || found != len(numberReaders) {
		t.Errorf("%d files read numbers, of %d: %v", found, len(numberReaders), err)
	}
}

// Every command works at a server, or its help says why it does not.
func TestEveryCommandTakesAServerOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	unused := maps.Clone(withoutServer)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			visit(below)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "recourse ")
		reason, listed := withoutServer[path]
		delete(unused, path)
		takes := cmd.Flags().Lookup("server") != nil
		switch {
		case cmd.HasSubCommands():
		case takes == listed:
			t.Errorf("%s takes --server: %t, and is listed as a command without it: %t", path, takes, listed)
		case listed && !strings.HasSuffix(cmd.Long, "This command takes no --server: "+reason+"."):
			t.Errorf("the help of %s does not say why it takes no --server: %s", path, cmd.Long)
		}
	}
	visit(rootCommand(&shell.Shell{}))
	if len(unused) > 0 {
		t.Errorf("these commands are not there: %v", unused)
	}
}
