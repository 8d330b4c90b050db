package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// typeFields describes the members that a type is decoded from. A nil *typeFields accepts any member.
type typeFields struct {
	fields map[string]*typeFields // of a struct, by JSON name
	items  *typeFields            // of the elements of a list or map
}

// element returns the fields of the elements of a list or map.
func (s *typeFields) element() *typeFields {
	if s == nil {
		return nil
	}
	return s.items
}

// member returns the fields of a member, or an error if its name differs from a field's only in case.
func (s *typeFields) member(name []byte) (*typeFields, *Error) {
	if s == nil || s.fields == nil {
		return s.element(), nil
	}
	field, known := s.fields[string(name)]
	if known {
		return field, nil
	}
	for own := range s.fields {
		if strings.EqualFold(own, string(name)) {
			return nil, &Error{Problem: "must be written " + own}
		}
	}
	return nil, nil
}

var typeFieldsCache sync.Map // reflect.Type to *typeFields

var (
	ownJSON = reflect.TypeFor[json.Unmarshaler]()
	ownText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func typeFieldsOf(t reflect.Type) *typeFields {
	if known, ok := typeFieldsCache.Load(t); ok {
		return known.(*typeFields)
	}
	s := describe(t, map[reflect.Type]*typeFields{})
	typeFieldsCache.Store(t, s)
	return s
}

// describe returns the fields of a type. open are the structs being described: types may contain themselves.
func describe(t reflect.Type, open map[reflect.Type]*typeFields) *typeFields {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p := reflect.PointerTo(t); p.Implements(ownJSON) || p.Implements(ownText) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if s, ok := open[t]; ok {
			return s
		}
		s := &typeFields{}
		open[t] = s
		s.items = describe(t.Elem(), open)
		return s
	case reflect.Struct:
		if s, ok := open[t]; ok {
			return s
		}
		s := &typeFields{fields: map[string]*typeFields{}}
		open[t] = s
		s.add(t, open)
		return s
	}
	return nil
}

// add adds the fields of a struct, and those of the structs embedded in it without a JSON name. A field hides
// those of the same name that are embedded deeper.
func (s *typeFields) add(t reflect.Type, open map[reflect.Type]*typeFields) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			embedded = append(embedded, inner)
		case !f.IsExported():
		default:
			if name == "" {
				name = f.Name
			}
			s.fields[name] = describe(f.Type, open)
		}
	}
	for _, inner := range embedded {
		deeper := &typeFields{fields: map[string]*typeFields{}}
		deeper.add(inner, open)
		for name, field := range deeper.fields {
			if _, hidden := s.fields[name]; !hidden {
				s.fields[name] = field
			}
		}
	}
}
