package archive

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"
)

func zipped(f *testing.F, text string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		f.Fatal(err)
	}
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// A file is read completely or with an error: a cut or altered file is an error.
func FuzzAFileIsReadToItsEndOrWithAnError(f *testing.F) {
	for _, seed := range []string{"", "{\"a\":1}\n", "{\"a\":1}\n{\"a\":2}\n", "{", "7", "\xff"} {
		whole := zipped(f, seed)
		f.Add(whole)
		f.Add(whole[:len(whole)-1])
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		records := 0
		more, err := decode(bytes.NewReader(file), func(r json.RawMessage, err error) bool {
			if err != nil || !json.Valid(r) {
				t.Errorf("%s, %v", r, err)
			}
			records++
			return true
		})
		if !more {
			t.Error("decode returned more after the last yield")
		}
		if err == nil && records > 0 && len(file) > 18 {
			if _, err := decode(bytes.NewReader(file[:len(file)-1]), func(json.RawMessage, error) bool { return true }); err == nil {
				t.Error("a cut file was read")
			}
		}
	})
}
