package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
)

// LetterExpr is a condition on a letter in the Common Expression Language, for what
// LetterFilter can't say:
//
//	amount.minor > 100000 && error.type.startsWith("Conn")
//
// Names are those of Letter's JSON; times are timestamps, age a duration. What a letter
// does not have, such as the amount of a task that moves no money, has no value, and a
// condition that depends on it is undecided. The pattern of matches is a literal text.
type LetterExpr struct {
	source  string
	program cel.Program
}

// Bounds of an expression: its length in bytes, how deep it goes, and what evaluating
// it once may cost, in the units of the language.
const (
	maxExpr      = 4096
	maxExprDepth = 50
	maxExprCost  = 10_000
)

// ParseLetterExpr reads and checks an expression. What it can't mean is refused as a
// *FieldError of the field where that tells the place.
func ParseLetterExpr(source string) (*LetterExpr, error) {
	switch {
	case strings.TrimSpace(source) == "":
		return nil, conditionError("must say something")
	case len(source) > maxExpr:
		return nil, conditionError(fmt.Sprintf("must be at most %d bytes", maxExpr))
	}
	env, err := exprEnv()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		if first.Location.Line() < 1 { // it is about all of it
			return nil, conditionError(first.Message)
		}
		return nil, conditionError(fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message))
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, conditionError("must be true or false; it is of type " + ast.OutputType().String())
	}
	sizes, err := sizePatterns(ast.NativeRep())
	if err != nil {
		return nil, err
	}
	// OptOptimize compiles the patterns here, once for all letters.
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxExprCost), cel.CostTracking(sizes), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, conditionError(err.Error())
	}
	return &LetterExpr{source, program}, nil
}

func conditionError(problem string) error { return &FieldError{Field: "where", Problem: problem} }

func (e *LetterExpr) String() string { return e.source }

// Matches reports whether a letter meets the condition. The error tells why that is
// undecided; such a letter is not to be selected.
func (e *LetterExpr) Matches(ctx context.Context, l Letter) (bool, error) {
	out, _, err := e.program.ContextEval(ctx, exprLetter{&l})
	if err != nil {
		return false, err
	}
	is, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("postadjudication: it is neither true nor false")
	}
	return is, nil
}

// exprEnv knows the names of a letter, with their types.
var exprEnv = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.ParserRecursionLimit(maxExprDepth), cel.ParserExpressionSizeLimit(maxExpr)}
	for name, member := range exprMembers {
		options = append(options, cel.Variable(name, member.kind))
	}
	return cel.NewEnv(options...)
})
