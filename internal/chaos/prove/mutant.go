package prove

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The ways in which a mutant changes the product. Each keeps what the condition reads, so that few do not compile.
const (
	inverted       = "inverted"             // the condition of an if
	neverTrue      = "never true"           // the condition of an if, a case, or an operand of ||
	alwaysTrue     = "always true"          // an operand of &&
	withoutCase    = "without the case"     // of a switch over a value
	withoutSQL     = "without the AND"      // of a statement
	withoutAssign  = "without assignment"   // to a field of money
	withoutElement = "without the element"  // of a field of money in a composite literal
	withoutValue   = "without a case value" // one of several
)

// mutant is one change of a file of the product.
type mutant struct {
	File string // from the root of the module
	Line int
	Kind string
	Text string // what it changes

	from, to int // bytes of the file
	with     string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d  %s: %s", m.File, m.Line, m.Kind, strings.Join(strings.Fields(m.Text), " "))
}

// overlay writes the changed file into a directory, and the JSON file for go build -overlay.
func (m mutant) overlay(root, dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	return writeOverlay(root, dir, map[string]string{m.File: string(raw[:m.from]) + m.with + string(raw[m.to:])})
}

// money matches what decides about money: a condition that does not match is not changed, except in package settlement,
// where all do.
var money = regexp.MustCompile(`(?i)moved|paid|pays?\b|reserv|releas|refund|unknown|class|outstanding|operation|generation|amount|commit|held|excess|executed|finding|lookup|flight|head|lease|attempt|budget|letter|live|lifetime|sent|breach|outcome|beat|waiting`)

// moneyFields matches the fields whose assignments are changed.
var moneyFields = regexp.MustCompile(`^(Moved|Paid|Reserved|Released|Refunded|Asked|Committed|Breached|Excess|Amount|UnknownOpen|OutstandingCalls|FirstSentAt|Class|Letter|Generation|Outcome|KeepReserved|Repeated|OlderPaid|Operation|Progression|Lifecycle|ReasonCode|Attempt|BudgetSpent|Recoveries|NotAfter|Delta)$`)

// mutants returns all mutants of a package, in order.
func mutants(root, pkg string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	var out []mutant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c := &changer{file: filepath.ToSlash(filepath.Join(pkg, filepath.Base(file))), text: string(raw), all: pkg == settlementPackage, set: token.NewFileSet()}
		parsed, err := parser.ParseFile(c.set, file, raw, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, c.visit)
		out = append(out, c.found...)
	}
	slices.SortStableFunc(out, func(a, b mutant) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.from - b.from
	})
	return out, nil
}

// changer collects the mutants of one file.
type changer struct {
	file, text string
	all        bool // every condition counts
	set        *token.FileSet
	found      []mutant
}

func (c *changer) offset(p token.Pos) int { return c.set.Position(p).Offset }

// add adds a mutant that replaces the text between two positions.
func (c *changer) add(kind string, from, to token.Pos, with string) {
	c.addAt(kind, c.offset(from), c.offset(to), with)
}

func (c *changer) addAt(kind string, from, to int, with string) {
	c.found = append(c.found, mutant{File: c.file, Line: 1 + strings.Count(c.text[:from], "\n"), Kind: kind, Text: c.text[from:to], from: from, to: to, with: with})
}

func (c *changer) source(n ast.Node) string { return c.text[c.offset(n.Pos()):c.offset(n.End())] }

// condition adds a mutant of a condition that is about money.
func (c *changer) condition(kind string, e ast.Expr) {
	text := c.source(e)
	if !c.all && !money.MatchString(text) {
		return
	}
	with := map[string]string{inverted: "!(" + text + ")", neverTrue: "((" + text + ") && false)", alwaysTrue: "((" + text + ") || true)"}[kind]
	c.add(kind, e.Pos(), e.End(), with)
}

func (c *changer) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		c.condition(inverted, n.Cond)
		c.condition(neverTrue, n.Cond)
	case *ast.BinaryExpr:
		kind := map[token.Token]string{token.LAND: alwaysTrue, token.LOR: neverTrue}[n.Op]
		for _, operand := range []ast.Expr{n.X, n.Y} {
			if b, is := operand.(*ast.BinaryExpr); kind != "" && (!is || b.Op != n.Op) {
				c.condition(kind, operand)
			}
		}
	case *ast.SwitchStmt:
		c.cases(n)
	case *ast.AssignStmt:
		c.assignment(n)
	case *ast.IncDecStmt:
		if f, is := n.X.(*ast.SelectorExpr); is && moneyFields.MatchString(f.Sel.Name) {
			c.add(withoutAssign, n.Pos(), n.End(), "")
		}
	case *ast.CompositeLit:
		c.elements(n)
	case *ast.BasicLit:
		if n.Kind == token.STRING && statement.MatchString(n.Value) {
			c.guards(n)
		}
	}
	return true
}

// cases changes the cases of a switch: conditions where it has no value, else whole cases, or one of several values.
func (c *changer) cases(s *ast.SwitchStmt) {
	for _, stmt := range s.Body.List {
		clause := stmt.(*ast.CaseClause)
		switch {
		case s.Tag == nil:
			for _, e := range clause.List {
				c.condition(neverTrue, e)
			}
		case !c.all && !money.MatchString(c.source(s.Tag)+c.source(clause)):
		case len(clause.List) == 1:
			c.add(withoutCase, clause.Pos(), clause.End(), "")
		default:
			for i, e := range clause.List {
				if i > 0 {
					c.add(withoutValue, clause.List[i-1].End(), e.End(), "")
				}
			}
		}
	}
}

// assignment drops the assignment to each field of money.
func (c *changer) assignment(s *ast.AssignStmt) {
	for i, left := range s.Lhs {
		f, is := left.(*ast.SelectorExpr)
		switch {
		case !is || !moneyFields.MatchString(f.Sel.Name):
		case s.Tok == token.ASSIGN:
			c.add(withoutAssign, left.Pos(), left.End(), "_")
		case i == 0:
			c.add(withoutAssign, s.Pos(), s.Rhs[0].Pos(), "_ = ")
		}
	}
}

// elements drops each field of money of a composite literal.
func (c *changer) elements(l *ast.CompositeLit) {
	for i, e := range l.Elts {
		pair, is := e.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		if key, is := pair.Key.(*ast.Ident); !is || !moneyFields.MatchString(key.Name) {
			continue
		}
		end := pair.End()
		if i+1 < len(l.Elts) {
			end = l.Elts[i+1].Pos()
		}
		from, to := c.offset(pair.Pos()), c.offset(end)
		if i+1 == len(l.Elts) && strings.HasPrefix(c.text[to:], ",") {
			to++
		}
		c.addAt(withoutElement, from, to, "")
	}
}

var (
	// statement matches the text of an SQL statement, or of a part of one.
	statement = regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|DELETE|WHERE|JOIN)\b`)
	// guard matches the beginning of a condition that is added to others.
	guard = regexp.MustCompile(`\bAND\s+`)
	// guardEnd matches what may follow it outside of parentheses.
	guardEnd = regexp.MustCompile(`^\s*(AND|OR|RETURNING|ORDER|GROUP|LIMIT|FOR|ON|WHERE|UNION|SET|FROM|JOIN|LEFT|THEN|ELSE|END|WHEN|CROSS|HAVING|DO)\b|^\s*[;` + "`" + `"]`)
)

// guards makes each condition of a statement that is added to others with AND always true. It keeps the
// condition's parameters.
func (c *changer) guards(l *ast.BasicLit) {
	base := c.offset(l.Pos())
	for _, at := range guard.FindAllStringIndex(l.Value, -1) {
		from := at[1]
		to, depth := from, 0
		for ; to < len(l.Value); to++ {
			if depth == 0 && guardEnd.MatchString(l.Value[to:]) && to > from {
				break
			}
			switch l.Value[to] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth < 0 {
				break
			}
		}
		text := l.Value[from:min(to, len(l.Value)-1)]
		before := strings.Fields(l.Value[:at[0]])
		if len(before) > 1 && before[len(before)-2] == "BETWEEN" || !money.MatchString(text) || strings.Contains(text, "%") {
			continue
		}
		c.addAt(withoutSQL, base+from, base+from+len(text), "("+text+" OR true)")
	}
}
