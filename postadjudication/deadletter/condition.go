package deadletter

import (
	"context"
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Condition is a condition on a letter in the Common Expression Language, for conditions
// that Filter can't express:
//
//	amount.minor > 100000 && error.type.startsWith("Conn")
//
// Names are those of Letter's JSON; times are timestamps, age is a duration. A member that a
// letter does not have, such as the amount of a plain task, has no value: a condition that
// depends on it is undecided. The pattern of matches must be a literal.
type Condition struct {
	source  string
	program cel.Program
}

// Bounds of an expression: its length in bytes, its depth, and the cost of one evaluation in
// cost units of the language.
const (
	maxExpr      = 4096
	maxExprDepth = 50
	maxExprCost  = 10_000
)

// ParseCondition parses and checks an expression. The error is a *refusal.FieldError of the field
// where, with line and column if known.
func ParseCondition(source string) (*Condition, error) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, ConditionError("must not be empty")
	case len(source) > maxExpr:
		return nil, ConditionError(fmt.Sprintf("must be at most %d bytes", maxExpr))
	}
	env, err := exprEnv()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		if first.Location.Line() < 1 { // the error has no position
			return nil, ConditionError(first.Message)
		}
		return nil, ConditionError(fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message))
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, ConditionError("must be true or false; it is of type " + ast.OutputType().String())
	}
	sizes, err := sizePatterns(ast.NativeRep())
	if err != nil {
		return nil, err
	}
	// OptOptimize compiles the patterns here, once for all letters.
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxExprCost), cel.CostTracking(sizes), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, ConditionError(err.Error())
	}
	return &Condition{source, program}, nil
}

// ConditionError returns the *refusal.FieldError for a condition.
func ConditionError(problem string) error {
	return &refusal.FieldError{Field: "where", Problem: problem}
}

func (e *Condition) String() string { return e.source }

// Matches reports whether a letter meets the condition. The error says why the condition is
// undecided; such a letter must not be selected.
func (e *Condition) Matches(ctx context.Context, l Letter) (bool, error) {
	out, _, err := e.program.ContextEval(ctx, exprLetter{&l})
	if err != nil {
		return false, err
	}
	is, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("postadjudication: the condition is neither true nor false")
	}
	return is, nil
}

// exprEnv declares the names of a letter, with their types. It checks one expression with an unknown name: the library
// makes its list of names with the first such error, without a lock that guards the checks that run meanwhile.
var exprEnv = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.ParserRecursionLimit(maxExprDepth), cel.ParserExpressionSizeLimit(maxExpr)}
	for name, member := range exprMembers {
		options = append(options, cel.Variable(name, member.kind))
	}
	made, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	if _, issues := made.Compile("unknown_name"); issues.Err() == nil {
		return nil, errors.New("postadjudication: an unknown name is known to conditions")
	}
	return made, nil
})

// exprMember is a member of a letter in expressions; value returns false if it has none.
type exprMember struct {
	kind  *cel.Type
	value func(l *Letter) (any, bool)
}

func exprText(of func(*Letter) string) exprMember {
	return exprMember{cel.StringType, func(l *Letter) (any, bool) { return of(l), true }}
}

func exprNumber(of func(*Letter) int) exprMember {
	return exprMember{cel.IntType, func(l *Letter) (any, bool) { return int64(of(l)), true }}
}

func exprFlag(of func(*Letter) bool) exprMember {
	return exprMember{cel.BoolType, func(l *Letter) (any, bool) { return of(l), true }}
}

func exprTime(of func(*Letter) *time.Time) exprMember {
	return exprMember{cel.TimestampType, func(l *Letter) (any, bool) {
		if t := of(l); t != nil {
			return *t, true
		}
		return nil, false
	}}
}

func exprMinor(of func(*Letter) *settlement.Money) exprMember {
	return exprMember{cel.IntType, func(l *Letter) (any, bool) {
		if m := of(l); m != nil {
			return m.Minor, true
		}
		return nil, false
	}}
}

func exprCurrency(of func(*Letter) *settlement.Money) exprMember {
	return exprMember{cel.StringType, func(l *Letter) (any, bool) {
		if m := of(l); m != nil {
			return m.Currency, true
		}
		return nil, false
	}}
}

// exprMembers lists all members of a letter by their JSON names. The error members of a letter
// without an error are empty texts.
var exprMembers = map[string]exprMember{
	"run_id": exprText(func(l *Letter) string { return l.Run.String() }), "case_id": exprText(func(l *Letter) string { return l.Case.String() }),
	"family": exprText(func(l *Letter) string { return l.Family }), "queue": exprText(func(l *Letter) string { return l.Queue }), "job_type": exprText(func(l *Letter) string { return l.JobType }),
	"transaction_receipt_id": exprText(func(l *Letter) string { return l.Transaction }), "submission_receipt_id": exprText(func(l *Letter) string { return l.Submission }),
	"escrow_reference": exprText(func(l *Letter) string { return l.Escrow }), "outcome": exprText(func(l *Letter) string { return string(l.Outcome) }),
	"amount.minor": exprMinor(func(l *Letter) *settlement.Money { return l.Amount }), "amount.currency": exprCurrency(func(l *Letter) *settlement.Money { return l.Amount }),
	"at_risk.minor": exprMinor(func(l *Letter) *settlement.Money { return l.AtRisk }), "at_risk.currency": exprCurrency(func(l *Letter) *settlement.Money { return l.AtRisk }),
	"letter":           exprText(func(l *Letter) string { return string(l.Status) }),
	"dead_lettered_at": exprTime(func(l *Letter) *time.Time { return &l.DeadAt }), "last_seen_at": exprTime(func(l *Letter) *time.Time { return &l.LastSeenAt }),
	"expires_at":  exprTime(func(l *Letter) *time.Time { return l.ExpiresAt }),
	"age":         {cel.DurationType, func(l *Letter) (any, bool) { return time.Duration(l.Age), true }},
	"reason_code": exprText(func(l *Letter) string { return l.ReasonCode }), "outcome_class": exprText(func(l *Letter) string { return string(l.Class) }),
	"attempts": exprNumber(func(l *Letter) int { return l.Attempts }), "replay_count": exprNumber(func(l *Letter) int { return l.Replays }),
	"error.type":    exprText(func(l *Letter) string { return l.failure().Type }),
	"error.code":    exprText(func(l *Letter) string { return l.failure().Code }),
	"error.message": exprText(func(l *Letter) string { return l.failure().Message }),
	"signature":     exprText(func(l *Letter) string { return l.Signature }), "replayed_by": exprText(func(l *Letter) string { return l.ReplayedBy }),
	"held": exprFlag(func(l *Letter) bool { return l.Held }), "reprocess_eligible": exprFlag(func(l *Letter) bool { return l.Reprocess }), "manual_review_required": exprFlag(func(l *Letter) bool { return l.Review }),
	"dispatch_reference": exprText(func(l *Letter) string { return l.Dispatch }),
	"can_fork":           exprFlag(func(l *Letter) bool { return l.CanFork }), "refused_by": exprText(func(l *Letter) string { return string(l.RefusedBy) }),
}

// exprLetter resolves names of expressions to the values of a letter.
type exprLetter struct{ *Letter }

// ResolveName implements cel.Activation.
func (l exprLetter) ResolveName(name string) (any, bool) {
	m, known := exprMembers[name]
	if !known {
		return nil, false
	}
	return m.value(l.Letter)
}

// Parent implements cel.Activation; there is none.
func (exprLetter) Parent() cel.Activation { return nil }

// failure returns the letter's error, zero if it has none.
func (l *Letter) failure() AttemptError {
	if l.Error == nil {
		return AttemptError{}
	}
	return AttemptError{Type: l.Error.Type, Code: l.Error.Code, Message: l.Error.Message}
}

// Bounds of the regular expressions of a condition together: their length in bytes, and
// the size of their compiled programs in instructions.
const (
	maxPatterns       = 1024
	maxPatternProgram = 2000
)

// patternStep is how many steps of a regular expression cost one cost unit.
const patternStep = 64

// patternSizes holds the estimated program size of each pattern of a condition.
type patternSizes map[string]int

// sizePatterns estimates the regular expressions of a checked condition without compiling
// them. It returns a *refusal.FieldError, with the position, for a pattern that is not a literal, is
// not a regular expression or is too large.
func sizePatterns(of *celast.AST) (patternSizes, error) {
	sizes, length, program := patternSizes{}, 0, 0
	var refused error
	visit := func(e celast.Expr) {
		if refused != nil || e.Kind() != celast.CallKind || e.AsCall().FunctionName() != overloads.Matches {
			return
		}
		args := e.AsCall().Args()
		pattern, literal := literalText(args[len(args)-1])
		at := of.SourceInfo().GetStartLocation(e.ID())
		refuse := func(problem string) {
			refused = ConditionError(fmt.Sprintf("line %d, column %d: %s", at.Line(), at.Column()+1, problem))
		}
		if !literal {
			refuse("the pattern of matches must be a literal text")
			return
		}
		if length += len(pattern); length > maxPatterns {
			refuse(fmt.Sprintf("the patterns of matches must be at most %d bytes together", maxPatterns))
			return
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			refuse("the pattern of matches is invalid: " + err.Error())
			return
		}
		size := programSize(parsed)
		if program += size; program > maxPatternProgram {
			refuse(fmt.Sprintf("the patterns of matches are too large: write them with fewer repetitions (over %d instructions together)", maxPatternProgram))
			return
		}
		sizes[pattern] = size
	}
	celast.PreOrderVisit(of.Expr(), celast.NewExprVisitor(visit))
	return sizes, refused
}

func literalText(e celast.Expr) (string, bool) {
	if e.Kind() != celast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// programSize returns an upper bound of the instructions that a regular expression compiles to.
// A character class counts by its ranges. Beyond maxPatternProgram the exact number does not
// matter.
func programSize(re *syntax.Regexp) int {
	size := 1
	switch re.Op {
	case syntax.OpLiteral:
		size = max(1, len(re.Rune))
	case syntax.OpCharClass:
		size += len(re.Rune) / 16
	case syntax.OpCapture, syntax.OpStar: // a star over a possibly empty match compiles to a plus behind a branch
		size = 2
	case syntax.OpAlternate:
		size = len(re.Sub)
	case syntax.OpConcat, syntax.OpRepeat:
		size = 0
	}
	for _, sub := range re.Sub {
		size = clampSize(size + programSize(sub))
	}
	size = max(1, size)
	if re.Op == syntax.OpRepeat {
		copies, branches := re.Max, re.Max-re.Min
		if re.Max < 0 {
			copies, branches = re.Min+1, 2
		}
		size = clampSize(size*max(1, copies) + branches)
	}
	return size
}

// clampSize keeps sums and products of sizes far below an overflow.
func clampSize(size int) int { return min(size, 2*maxPatternProgram) }

// CallCost returns the cost of matching a text against a pattern: a matcher may take a step
// for each instruction at each byte. It returns nil for other functions, which have the
// language's costs.
func (p patternSizes) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function != overloads.Matches || len(args) != 2 {
		return nil
	}
	text, isText := args[0].(types.String)
	pattern, isPattern := args[1].(types.String)
	if !isText || !isPattern {
		return nil
	}
	cost := uint64(1 + len(text)*p[string(pattern)]/patternStep)
	return &cost
}

// ErrTooManyConditions means that a search, export or plan with a condition was not started,
// since the tenant or the process already runs the maximum. The caller may retry after some
// seconds.
var ErrTooManyConditions = fmt.Errorf("postadjudication: too many searches with a condition at once: %d of a tenant and %d of a process are worked on", maxConditionsPerTenant, maxConditionsPerProcess)

// How many searches, exports and plans with a condition run at once. Each keeps one page of
// letters and one program in memory.
const (
	maxConditionsPerTenant  = 2
	maxConditionsPerProcess = 16
)

// Limiter bounds the work for conditions in a process. All conditions are compiled and
// evaluated on half of the processors, so that the other half is left to settlements.
type Limiter struct {
	cpu *tenantlimit.Limit

	mu       sync.Mutex
	active   int
	byTenant map[string]int
}

// NewLimiter returns a Limiter with all slots free.
func NewLimiter() *Limiter {
	return &Limiter{cpu: tenantlimit.Processors(), byTenant: map[string]int{}}
}

// acquire takes a slot of a tenant. It returns ErrTooManyConditions if there is none. The caller
// must call release once.
func (l *Limiter) acquire(tenant string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active == maxConditionsPerProcess || l.byTenant[tenant] == maxConditionsPerTenant {
		return nil, ErrTooManyConditions
	}
	l.active++
	l.byTenant[tenant]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.active--
		if l.byTenant[tenant]--; l.byTenant[tenant] == 0 {
			delete(l.byTenant, tenant)
		}
	}, nil
}

// LimitedCondition is a condition that holds a slot of the limiter.
type LimitedCondition struct {
	*Condition
	limiter *Limiter
	tenant  string
	release func()
}

// Condition takes a slot, then compiles the condition. It returns nil for an empty condition.
// The caller must call Done.
func (l *Limiter) Condition(ctx context.Context, tenant, where string) (*LimitedCondition, error) {
	if where == "" {
		return nil, nil
	}
	release, err := l.acquire(tenant)
	if err != nil {
		return nil, err
	}
	var e *Condition
	var refused error
	waited := l.cpu.Do(ctx, tenant, func() { e, refused = ParseCondition(where) })
	if err := errors.Join(waited, refused); err != nil {
		release()
		return nil, err
	}
	return &LimitedCondition{e, l, tenant, release}, nil
}

// CheckCondition returns the error with which a search, export or plan of a tenant would refuse
// the condition: a *refusal.FieldError of where, or ErrTooManyConditions.
func (l Letters) CheckCondition(ctx context.Context, where string) error {
	c, err := l.s.Limiter.Condition(ctx, l.tenant, where)
	c.Done()
	return err
}

// Matches is Condition.Matches; it blocks until a processor is free.
func (c *LimitedCondition) Matches(ctx context.Context, letter Letter) (matches bool, err error) {
	if waitErr := c.limiter.cpu.Do(ctx, c.tenant, func() { matches, err = c.Condition.Matches(ctx, letter) }); waitErr != nil {
		return false, waitErr
	}
	return matches, err
}

// Done releases the slot. It does nothing on nil.
func (c *LimitedCondition) Done() {
	if c != nil {
		c.release()
	}
}
