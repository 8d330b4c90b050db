package prove

import (
	"os"
	"reflect"
	"strconv"
	"sync"
)

// This file is compiled into each package whose mutants are tried, with another package clause: see switched. There
// the functions stand in the text of the product, and the environment says which mutant is on.

var (
	mutantOn, _   = strconv.Atoi(os.Getenv("RECOURSE_MUTANT")) // 0: none
	mutantsMet    = os.Getenv("RECOURSE_MUTANTS_MET")          // file of the numbers of mutants that change something; empty: none
	mutantsMetYet sync.Map
)

// mutantIs reports whether a mutant is on. It is called only where the mutant changes something.
func mutantIs(number int) bool {
	if _, known := mutantsMetYet.LoadOrStore(number, true); mutantsMet != "" && !known {
		f, err := os.OpenFile(mutantsMet, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(strconv.Itoa(number) + "\n")
			_ = f.Close()
		}
		if err != nil {
			panic(err)
		}
	}
	return number == mutantOn
}

// mutantText returns what a statement gets of a mutant: nothing, unless it is on.
func mutantText(number int, text string) string {
	if !mutantIs(number) {
		return ""
	}
	return text
}

// mutantSet returns what is assigned to: the field, or nothing that anybody reads.
func mutantSet[T any](number int, field *T) *T {
	if mutantIs(number) {
		field = new(T)
	}
	return field
}

// mutantDrop takes a field out of a new struct.
func mutantDrop[T any](number int, field string, of *T) *T {
	if f := reflect.ValueOf(of).Elem().FieldByName(field); !f.IsZero() && mutantIs(number) {
		f.SetZero()
	}
	return of
}

// mutantCase returns the value of a switch: another one than any case has, if it is that of the case.
func mutantCase[T comparable](number int, value, dropped T) T {
	if value == dropped && mutantIs(number) {
		switch v := reflect.ValueOf(&value).Elem(); {
		case v.Kind() == reflect.String:
			v.SetString("\x00")
		case v.CanInt():
			v.SetInt(-128)
		case v.CanUint():
			v.SetUint(255)
		default:
			v.SetZero()
		}
	}
	return value
}
