package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

// Estimating the first took seconds and gigabytes when it was compiled for that.
func TestPatternsThatAreTooLargeAreRefusedBeforeTheyAreCompiled(t *testing.T) {
	t.Parallel()
	dots := strings.Repeat(".", 900)
	for source, problem := range map[string]string{
		`error.message.matches("(?:` + dots + `){1000}"+"")`:                                                   "line 1, column 22: the pattern of matches must be a literal text",
		`error.message.matches(error.code)`:                                                                    "must be a literal text",
		`["a","b"].exists(p, error.message.matches(p))`:                                                        "must be a literal text",
		`error.message.matches(held ? "a" : "b")`:                                                              "must be a literal text",
		`error.message.matches("(?:` + dots + `){1000}")`:                                                      "too large",
		`matches(error.message, "(?:abc){900}")`:                                                               "too large",
		`error.message.matches("(((a{30}){30}){30})")`:                                                         "can't be read",
		`error.message.matches("(((abc){30}){30})")`:                                                           "too large",
		`error.message.matches("(a?){999}")`:                                                                   "too large",
		`error.message.matches("` + strings.Repeat(`\\pL`, 40) + `")`:                                          "too large",
		`error.message.matches("(ab){400}") || error.code.matches("(ab){400}") || family.matches("(ab){400}")`: "too large",
		`error.message.matches("` + strings.Repeat("a", 1025) + `")`:                                           "at most 1024 bytes together",
		`error.message.matches("(")`:                                                                           "can't be read: error parsing regexp: missing closing )",
	} {
		_, err := ParseLetterExpr(source)
		var field *FieldError
		if !errors.As(err, &field) || field.Field != "where" || !strings.Contains(field.Problem, problem) {
			t.Errorf("%.60q: %v, want %q", source, err, problem)
		}
	}
}

func TestPatternsOfEverydayUseAreTaken(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`10\\.0\\.0\\.[0-9]+`, `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, `(?i)time(d)? ?out|deadline (was )?exceeded`,
		`\\bHTTP/[12]\\.[01]\\b .{1,200} 50[0-9]`, `\\p{Lu}\\p{Ll}+`, `^.{0,500}$`,
	} {
		if _, err := ParseLetterExpr(`error.message.matches("` + pattern + `")`); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// A letter with the longest message costs a bounded number of steps, however often it is
// matched.
func TestMatchingCostsWhatThePatternIs(t *testing.T) {
	t.Parallel()
	l := exampleLetter()
	l.Error.Message = strings.Repeat("a", 512)
	many := "[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "]"
	e, err := ParseLetterExpr(many + `.all(x, error.message.matches("(a|b){300}c") || x == 1)`)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := e.Matches(context.Background(), l); err == nil || met || !strings.Contains(err.Error(), "cost") {
		t.Errorf("%v, %v", met, err)
	}
	e, err = ParseLetterExpr(`error.message.matches("(a|b){100}") && !error.message.matches("c$")`)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := e.Matches(context.Background(), l); err != nil || !met {
		t.Errorf("%v, %v", met, err)
	}
}

// A pattern of 900 instructions is some thousand allocations to compile.
func TestAPatternIsCompiledOnceForAllLetters(t *testing.T) {
	l := exampleLetter()
	e, err := ParseLetterExpr(`error.message.matches("x(?:abcdefghi){90}")`)
	if err != nil {
		t.Fatal(err)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := e.Matches(context.Background(), l); err != nil {
			t.Error(err)
		}
	}); allocs > 100 {
		t.Errorf("%.0f allocations a letter", allocs)
	}
}

// programSize is at least what the compiler makes of a pattern, as far as it is not clipped.
func FuzzAProgramIsNeverLargerThanItsEstimate(f *testing.F) {
	for _, seed := range []string{"", "a", "abc", "a|b|cd", "(a)(b)", "a*b+?c?", "a{3}", "a{2,5}", "a{2,}", "(a{2}){3,4}", "(?i)kS", "[a-z0-9]", `\pL`, "^$", `\b.`, "(?s).", "(?:){7}", "(|a)*", "(a?){9}", "()", "[^a]{0}", "(?i)ab|ac"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if len(pattern) > maxPatterns {
			return
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return
		}
		estimate := programSize(parsed)
		if estimate > maxPatternProgram {
			return
		}
		compiled, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(compiled.Inst) - 2; got > estimate { // fail and match are there always
			t.Errorf("%q: %d instructions, estimated %d", pattern, got, estimate)
		}
		if _, err := regexp.Compile(pattern); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	})
}

func BenchmarkEstimatePattern(b *testing.B) {
	for name, pattern := range map[string]string{"classes": `(?i)` + strings.Repeat(`[\pL]`, 200), "nested": strings.Repeat("(", 300) + strings.Repeat(")", 300), "case": "(?i)" + strings.Repeat(`[^\pL]`, 170)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := ParseLetterExpr(fmt.Sprintf("error.message.matches(%q)", pattern))
				if err == nil {
					b.Fatal("taken")
				}
			}
		})
	}
}
