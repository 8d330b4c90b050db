package textfile_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/text/encoding/unicode"

	"github.com/recourse-dev/recourse/internal/textfile"
)

const text = "{\"transaction_receipt_id\":\"tür_1\"}\r\n{\"a\":\"𝄞\"}\n"

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func utf16(t *testing.T, text string, order unicode.Endianness, mark unicode.BOMPolicy) string {
	t.Helper()
	out, err := unicode.UTF16(order, mark).NewEncoder().String(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEachFormOfATextIsTheSameText(t *testing.T) {
	t.Parallel()
	for form, file := range map[string]string{
		"UTF-8": text, "UTF-8 with a mark": "\ufeff" + text,
		"UTF-16LE": utf16(t, text, unicode.LittleEndian, unicode.UseBOM), "UTF-16BE": utf16(t, text, unicode.BigEndian, unicode.UseBOM),
		"gzip": packed(t, text), "gzip with a mark": packed(t, "\ufeff"+text), "gzip of UTF-16": packed(t, utf16(t, text, unicode.LittleEndian, unicode.UseBOM)),
	} {
		for _, from := range []io.Reader{strings.NewReader(file), iotest.OneByteReader(strings.NewReader(file))} {
			if got, err := io.ReadAll(textfile.NewReader(from)); err != nil || string(got) != text {
				t.Errorf("%s: %q, %v", form, got, err)
			}
		}
	}
	for _, short := range []string{"", "a", "\n", "{}", "\xc3"} {
		if got, err := io.ReadAll(textfile.NewReader(strings.NewReader(short))); err != nil || string(got) != short {
			t.Errorf("%q: %q, %v", short, got, err)
		}
	}
}

func TestAFormThatIsNotReadIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, want, plain string }{
		{utf16(t, text, unicode.LittleEndian, unicode.IgnoreBOM), "without a byte order mark", "without a byte order mark"},
		{utf16(t, text, unicode.BigEndian, unicode.IgnoreBOM), "without a byte order mark", "without a byte order mark"},
		{"\xff\xfe\x00\x00{\x00\x00\x00", "UTF-32", "UTF-32"}, {"PK\x03\x04....", "zip", "zip"}, {"\xfd7zXZ\x00..", "xz", "xz"},
		{"\x28\xb5\x2f\xfd..", "zstd", "zstd"}, {"BZh91AY", "bzip2", "bzip2"}, {packed(t, packed(t, text)), "more than once", "compressed with gzip; unpack"},
		{packed(t, text), "", "compressed with gzip; unpack"}, {utf16(t, text, unicode.BigEndian, unicode.UseBOM), "", "UTF-16"},
	} {
		if _, err := io.ReadAll(textfile.NewReader(strings.NewReader(c.file))); (err != nil) != (c.want != "") || err != nil && (!errors.Is(err, textfile.ErrForm) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.8q: %v, want %q", c.file, err, c.want)
		}
		if _, err := textfile.Plain([]byte(c.file)); !errors.Is(err, textfile.ErrForm) || !strings.Contains(err.Error(), c.plain) {
			t.Errorf("%.8q in its parts: %v, want %q", c.file, err, c.plain)
		}
	}
	if at, err := textfile.Plain([]byte("\ufeff" + text)); at != 3 || err != nil {
		t.Errorf("%d, %v", at, err)
	}
	if _, err := io.ReadAll(textfile.NewReader(strings.NewReader(packed(t, text)[:20]))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is cut off: %v", err)
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(textfile.NewReader(iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if got := string(textfile.Unix([]byte("a\r\nb\rc\n"))); got != "a\nb\rc\n" {
		t.Errorf("%q", got)
	}
}
