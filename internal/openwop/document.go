package openwop

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
)

//go:embed openapi.json
var openAPI []byte

// documentAge is for how long clients may keep a document, in seconds.
const documentAge = "300"

// document is a JSON document that stays the same while the process runs.
type document struct {
	body []byte
	etag string
}

func newDocument(v any) (document, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return document{}, err
	}
	sum := sha256.Sum256(body)
	return document{append(body, '\n'), `"` + hex.EncodeToString(sum[:8]) + `"`}, nil
}

// ServeHTTP answers 304 to a client that has the document.
func (d document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age="+documentAge)
	w.Header().Set("ETag", d.etag)
	if d.matches(r.Header.Get("If-None-Match")) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(d.body) // a reader that left needs no answer
}

// matches reports whether the tags of If-None-Match have the document's: as HTTP compares them, weakly.
func (d document) matches(tags string) bool {
	if strings.TrimSpace(tags) == "*" {
		return true
	}
	for tag := range strings.SplitSeq(tags, ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == d.etag {
			return true
		}
	}
	return false
}
