package prove

import (
	"cmp"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The ways in which a mutant changes the product.
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

	from, to      int    // bytes of the file that it puts something around
	before, after string // what it puts there; %d stands for its number
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d  %s: %s", m.File, m.Line, m.Kind, strings.Join(strings.Fields(m.Text), " "))
}

// switches are the functions that the mutants of a package call.
//
//go:embed mutantswitch.go
var switches string

// insert is a text that a file gets at a place.
type insert struct {
	at, span, order int // span: bytes that it is put around, negative before them
	text            string
}

// rank orders what is put at one place: what ends there, the innermost first, and then what begins, the outermost first.
func (i insert) rank() int {
	if i.span > 0 {
		return i.span - math.MaxInt
	}
	return i.span
}

// overlay writes the files of a package with all given mutants, by number, into a directory, and the JSON file for go
// build -overlay. Lines keep their numbers.
func overlay(root, dir, pkg string, numbered map[int]mutant) (string, error) {
	files, err := withoutConstants(root, pkg)
	if err != nil {
		return "", err
	}
	inserts := map[string][]insert{}
	for _, n := range slices.Sorted(maps.Keys(numbered)) {
		m, of := numbered[n], strings.NewReplacer("%d", strconv.Itoa(n))
		inserts[m.File] = append(inserts[m.File], insert{m.from, m.from - m.to, n, of.Replace(m.before)}, insert{m.to, m.to - m.from, -n, of.Replace(m.after)})
	}
	texts := map[string]string{pkg + "/zz_mutantswitch.go": strings.Replace(switches, "package prove", "package "+filepath.Base(pkg), 1)}
	for file, raw := range files {
		list := inserts[file]
		slices.SortFunc(list, func(a, b insert) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.order, b.order))
		})
		var text strings.Builder
		last := 0
		for _, i := range list {
			text.WriteString(raw[last:i.at])
			text.WriteString(i.text)
			last = i.at
		}
		text.WriteString(raw[last:])
		texts[file] = text.String()
	}
	return writeOverlay(root, dir, texts)
}

// withoutConstants returns the files of a package whose constants that hold statements, or are made of such ones, are
// variables: the mutants of statements are not constant. Each byte keeps its place.
func withoutConstants(root, pkg string) (map[string]string, error) {
	texts, parsed, set := map[string]string{}, map[string]*ast.File{}, token.NewFileSet()
	err := eachFile(root, pkg, func(name string, raw []byte) (err error) {
		texts[name] = string(raw)
		parsed[name], err = parser.ParseFile(set, name, raw, parser.SkipObjectResolution)
		return err
	})
	statements := map[string]bool{} // names of variables that were constants
	for before := -1; err == nil && before < len(statements); {
		before = len(statements)
		for name, file := range parsed {
			ast.Inspect(file, func(n ast.Node) bool {
				if d, is := n.(*ast.GenDecl); is && d.Tok == token.CONST && holdsStatement(d, statements) {
					at := set.Position(d.Pos()).Offset
					texts[name] = texts[name][:at] + "var  " + texts[name][at+len("const"):]
				}
				return true
			})
		}
	}
	return texts, err
}

// holdsStatement reports whether a constant of a declaration holds a statement, itself or by a name of statements. It
// adds the declaration's names then. A declaration that has numbers too stays as it is.
func holdsStatement(d *ast.GenDecl, statements map[string]bool) (holds bool) {
	var names []string
	numbers := false
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			names = append(names, name.Name)
		}
		for _, value := range spec.(*ast.ValueSpec).Values {
			ast.Inspect(value, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					holds = holds || n.Kind == token.STRING && statement.MatchString(n.Value)
					numbers = numbers || n.Kind != token.STRING
				case *ast.Ident:
					holds = holds || statements[n.Name]
				}
				return true
			})
		}
	}
	if numbers || !holds {
		return false
	}
	for _, name := range names {
		statements[name] = true
	}
	return true
}

// eachFile calls a function for each file of a package, in order, with its name from the root of the module.
func eachFile(root, pkg string, f func(name string, raw []byte) error) error {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil {
			err = f(filepath.ToSlash(filepath.Join(pkg, filepath.Base(file))), raw)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// money matches what decides about money: a condition that does not match is not changed, except in package settlement,
// where all do.
var money = regexp.MustCompile(`(?i)moved|paid|pays?\b|reserv|releas|refund|unknown|class|outstanding|operation|generation|amount|commit|held|excess|executed|finding|lookup|flight|head|lease|attempt|budget|letter|live|lifetime|sent|breach|outcome|beat|waiting`)

// moneyFields matches the fields whose assignments are changed.
var moneyFields = regexp.MustCompile(`^(Moved|Paid|Reserved|Released|Refunded|Asked|Committed|Breached|Excess|Amount|UnknownOpen|OutstandingCalls|FirstSentAt|Class|Letter|Generation|Outcome|KeepReserved|Repeated|OlderPaid|Operation|Progression|Lifecycle|ReasonCode|Attempt|BudgetSpent|Recoveries|NotAfter|Delta)$`)

// mutants returns all mutants of a package, in order.
func mutants(root, pkg string) ([]mutant, error) {
	var out []mutant
	err := eachFile(root, pkg, func(name string, raw []byte) error {
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		c := &changer{file: name, text: string(raw), all: pkg == settlementPackage, set: token.NewFileSet()}
		parsed, err := parser.ParseFile(c.set, name, raw, parser.SkipObjectResolution)
		if err == nil {
			ast.Inspect(parsed, c.visit)
			out = append(out, c.found...)
		}
		return err
	})
	return out, err
}

// changer collects the mutants of one file.
type changer struct {
	file, text string
	all        bool // every condition counts
	set        *token.FileSet
	found      []mutant
}

func (c *changer) offset(p token.Pos) int { return c.set.Position(p).Offset }

// add adds a mutant of a text, which puts something around another or the same text.
func (c *changer) add(kind, text string, at, from, to token.Pos, before, after string) {
	c.found = append(c.found, mutant{File: c.file, Line: c.set.Position(at).Line, Kind: kind, Text: text, from: c.offset(from), to: c.offset(to), before: before, after: after})
}

func (c *changer) source(n ast.Node) string { return c.text[c.offset(n.Pos()):c.offset(n.End())] }

// condition adds a mutant of a condition that is about money.
func (c *changer) condition(kind string, e ast.Expr) {
	text := c.source(e)
	if !c.all && !money.MatchString(text) {
		return
	}
	after := map[string]string{inverted: ") != mutantIs(%d))", neverTrue: ") && !mutantIs(%d))", alwaysTrue: ") || mutantIs(%d))"}[kind]
	c.add(kind, text, e.Pos(), e.Pos(), e.End(), "((", after)
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
		c.assignments(n.Lhs...)
	case *ast.IncDecStmt:
		c.assignments(n.X)
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
		default:
			for _, e := range clause.List {
				kind, text := withoutCase, c.source(clause)
				if len(clause.List) > 1 {
					kind, text = withoutValue, c.source(e)
				}
				c.add(kind, text, e.Pos(), s.Tag.Pos(), s.Tag.End(), "mutantCase(%d, ", ", "+c.source(e)+")")
			}
		}
	}
}

// assignments drops the assignment to each field of money.
func (c *changer) assignments(to ...ast.Expr) {
	for _, left := range to {
		if f, is := left.(*ast.SelectorExpr); is && moneyFields.MatchString(f.Sel.Name) {
			c.add(withoutAssign, c.source(left), left.Pos(), left.Pos(), left.End(), "*mutantSet(%d, &", ")")
		}
	}
}

// elements drops each field of money of a composite literal of a named type.
func (c *changer) elements(l *ast.CompositeLit) {
	for _, e := range l.Elts {
		pair, is := e.(*ast.KeyValueExpr)
		if !is || l.Type == nil {
			continue
		}
		if key, is := pair.Key.(*ast.Ident); is && moneyFields.MatchString(key.Name) {
			c.add(withoutElement, c.source(pair), pair.Pos(), l.Pos(), l.End(), "(*mutantDrop(%d, \""+key.Name+"\", &", "))")
		}
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
		begin := l.Pos() + token.Pos(from)
		put := l.Value[:1] + ` + mutantText(%d, "%s") + ` + l.Value[:1]
		c.add(withoutSQL, text, begin, begin, begin+token.Pos(len(text)), strings.Replace(put, "%s", "(", 1), strings.Replace(put, "%s", " OR true)", 1))
	}
}
