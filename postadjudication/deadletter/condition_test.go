package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Every member of a letter's JSON has a name in expressions, and there are no other names.
func TestExpressionsKnowEveryMemberOfALetter(t *testing.T) {
	t.Parallel()
	at := time.Now()
	full := deadletter.Letter{Amount: &settlement.Money{}, AtRisk: &settlement.Money{}, Error: &background.Failure{Type: "t", Code: "c", Message: "m"}, ExpiresAt: &at}
	fillTexts(reflect.ValueOf(&full).Elem())
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for name, value := range members {
		inner, nested := value.(map[string]any)
		if !nested {
			names[name] = true
		}
		for part := range inner {
			if part != "stack" {
				names[name+"."+strings.ToLower(part)] = true
			}
		}
	}
	if got, want := slices.Sorted(deadletter.ConditionMembers()), slices.Sorted(maps.Keys(names)); !slices.Equal(got, want) {
		t.Errorf("expressions know %v\nletters have %v", got, want)
	}
}

// fillTexts sets all texts of a letter, so that none is omitted from its JSON.
func fillTexts(v reflect.Value) {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString("x")
		}
	}
}

func exampleLetter() deadletter.Letter {
	died := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	return deadletter.Letter{
		Run: background.RunID{1}, Family: casework.Family, Queue: "settlement:0", Outcome: settlement.Release, Amount: &settlement.Money{Minor: 250_000, Currency: "EUR"},
		Status: background.LetterOpen, DeadAt: died, Age: deadletter.Duration(36 * time.Hour), ReasonCode: background.ReasonFinal, Class: escrow.NotExecuted, Attempts: 3, Replays: 1,
		Error: &background.Failure{Type: "ConnRefused", Code: "111", Message: "dial tcp 10.0.0.1: refused"}, Held: true, LastSeenAt: died, CanFork: true,
	}
}

func TestExpressionsSelectWhatTheySay(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		`amount.minor > 100000 && error.type.startsWith("Conn")`: true,
		`amount.minor > 250000`:                                  false,
		`amount.currency in ["EUR", "USD"]`:                      true,
		`age > duration("24h") && age < duration("48h")`:         true,
		`dead_lettered_at < timestamp("2026-11-01T10:00:00Z")`:   false,
		`dead_lettered_at.getHours() == 10`:                      true,
		`error.message.matches("10\\.0\\.0\\.[0-9]+")`:           true,
		`held && !manual_review_required && can_fork`:            true,
		`attempts == 3 && replay_count >= 1`:                     true,
		`letter == "open" && outcome != "refund"`:                true,
		`size(error.code) == 3 || expires_at > dead_lettered_at`: true,
		`family == "mailer" && expires_at > dead_lettered_at`:    false,
	} {
		e, err := deadletter.ParseCondition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := e.Matches(context.Background(), exampleLetter()); err != nil || got != want || e.String() != source {
			t.Errorf("%s: %v, %v; want %v", source, got, err, want)
		}
	}
}

// An expression on an absent member is undecided, as is one that costs too much.
func TestExpressionsThatCantBeToldSelectNothing(t *testing.T) {
	t.Parallel()
	many := "[" + strings.TrimSuffix(strings.Repeat("1,", 300), ",") + "]"
	for _, source := range []string{
		`expires_at > dead_lettered_at`, `at_risk.minor < 1`, `!(at_risk.minor < 1)`, `attempts / (replay_count - 1) > 0`, `int(error.type) == 0`,
		many + `.all(a, ` + many + `.all(b, a == b))`,
	} {
		e, err := deadletter.ParseCondition(source)
		if err != nil {
			t.Errorf("%.60s: %v", source, err)
			continue
		}
		if got, err := e.Matches(context.Background(), exampleLetter()); err == nil || got {
			t.Errorf("%.60s: %v, %v", source, got, err)
		}
	}
}

func TestExpressionsThatMakeNoSenseAreRefusedWithTheirPlace(t *testing.T) {
	t.Parallel()
	for source, problem := range map[string]string{
		"": "must not be empty", "  ": "must not be empty",
		`amount.minor > "x"`:               "line 1, column 14: found no matching overload",
		"held &&\n amount.minr > 1":        "line 2, column 8: undeclared reference to 'amount.minr'",
		`error.typ == "x"`:                 "line 1, column 6: undeclared reference to 'error.typ'",
		`held &&`:                          "line 1, column 8: Syntax error",
		`amount.minor`:                     "must be true or false; it is of type int",
		`dyn(held)`:                        "must be true or false; it is of type dyn",
		`nobody()`:                         "undeclared reference to 'nobody'",
		strings.Repeat("(", 3000) + "held": "recursion limit exceeded",
		strings.Repeat(" ", 5000) + "held": "must be at most 4096 bytes",
		`error.message.matches("(")`:       "missing closing )",
	} {
		_, err := deadletter.ParseCondition(source)
		var field *refusal.FieldError
		if !errors.As(err, &field) || field.Field != "where" || !strings.Contains(field.Problem, problem) {
			t.Errorf("%.60q: %v, want %q", source, err, problem)
		}
	}
}

// Compiling the first pattern to estimate its size took seconds and gigabytes.
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
		`error.message.matches("(((a{30}){30}){30})")`:                                                         "is invalid",
		`error.message.matches("(((abc){30}){30})")`:                                                           "too large",
		`error.message.matches("(a?){999}")`:                                                                   "too large",
		`error.message.matches("` + strings.Repeat(`\\pL`, 40) + `")`:                                          "too large",
		`error.message.matches("(ab){400}") || error.code.matches("(ab){400}") || family.matches("(ab){400}")`: "too large",
		`error.message.matches("` + strings.Repeat("a", 1025) + `")`:                                           "at most 1024 bytes together",
		`error.message.matches("(")`:                                                                           "is invalid: error parsing regexp: missing closing )",
	} {
		_, err := deadletter.ParseCondition(source)
		var field *refusal.FieldError
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
		if _, err := deadletter.ParseCondition(`error.message.matches("` + pattern + `")`); err != nil {
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
	e, err := deadletter.ParseCondition(many + `.all(x, error.message.matches("(a|b){300}c") || x == 1)`)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := e.Matches(context.Background(), l); err == nil || met || !strings.Contains(err.Error(), "cost") {
		t.Errorf("%v, %v", met, err)
	}
	e, err = deadletter.ParseCondition(`error.message.matches("(a|b){100}") && !error.message.matches("c$")`)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := e.Matches(context.Background(), l); err != nil || !met {
		t.Errorf("%v, %v", met, err)
	}
}

// Compiling a pattern of 900 instructions takes some thousand allocations.
func TestAPatternIsCompiledOnceForAllLetters(t *testing.T) {
	l := exampleLetter()
	e, err := deadletter.ParseCondition(`error.message.matches("x(?:abcdefghi){90}")`)
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

// ProgramSize is an upper bound of the compiled size, unless it is clipped.
func FuzzAProgramIsNeverLargerThanItsEstimate(f *testing.F) {
	for _, seed := range []string{"", "a", "abc", "a|b|cd", "(a)(b)", "a*b+?c?", "a{3}", "a{2,5}", "a{2,}", "(a{2}){3,4}", "(?i)kS", "[a-z0-9]", `\pL`, "^$", `\b.`, "(?s).", "(?:){7}", "(|a)*", "(a?){9}", "()", "[^a]{0}", "(?i)ab|ac"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if len(pattern) > deadletter.MaxPatterns {
			return
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return
		}
		estimate := deadletter.ProgramSize(parsed)
		if estimate > deadletter.MaxPatternProgram {
			return
		}
		compiled, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(compiled.Inst) - 2; got > estimate { // every program has fail and match
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
				_, err := deadletter.ParseCondition(fmt.Sprintf("error.message.matches(%q)", pattern))
				if err == nil {
					b.Fatal("taken")
				}
			}
		})
	}
}
