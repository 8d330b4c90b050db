package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// typeFields is which members a type is read from. A nil shape knows of none, and takes any.
type typeFields struct {
	fields map[string]*typeFields // of a struct: by their names in JSON
	items  *typeFields            // of a list or map: of what is in it
}

// element is the shape of what a list holds.
func (s *typeFields) element() *typeFields {
	if s == nil {
		return nil
	}
	return s.items
}

// member is the shape of a member by its name, or the error of one whose name is that of a field but for its case.
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

var typeFieldsCache sync.Map // of reflect.Type to *shape

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

// describe follows a type down. open are the structs on the way, for types may hold themselves.
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

// add takes the fields of a struct in, and those of the structs that are embedded in it without a name, which fields
// nearer to the surface hide.
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
