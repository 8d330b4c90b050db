package postadjudication

import (
	"fmt"
	"regexp/syntax"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Bounds of the regular expressions of a condition, all of them together: their length in
// bytes, and the size of their compiled programs in instructions.
const (
	maxPatterns       = 1024
	maxPatternProgram = 2000
)

// patternStep is how many steps of a regular expression cost one unit of an evaluation.
const patternStep = 64

// patternSizes are the estimated programs of the patterns of a condition.
type patternSizes map[string]int

// sizePatterns estimates the regular expressions of a checked condition without compiling
// one. It returns a *FieldError for a pattern that is not a literal, is not a regular
// expression or is too large, and where it stands.
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
			refused = conditionError(fmt.Sprintf("line %d, column %d: %s", at.Line(), at.Column()+1, problem))
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
			refuse("the pattern of matches can't be read: " + err.Error())
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

// programSize is an upper bound of the instructions that a regular expression compiles to.
// A class of characters counts as more than one, as its ranges do. Above the bound of
// patterns it returns some number above that.
func programSize(re *syntax.Regexp) int {
	size := 1
	switch re.Op {
	case syntax.OpLiteral:
		size = max(1, len(re.Rune))
	case syntax.OpCharClass:
		size += len(re.Rune) / 16
	case syntax.OpCapture, syntax.OpStar: // a star of what may be empty is a plus behind a branch
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

// CallCost returns what matching one text against a pattern costs: a matcher may take a step
// for each instruction at each byte. It returns nil for other functions, whose costs are
// those of the language.
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
