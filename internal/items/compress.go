package items

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gpumux/gpumux"
)

// maxWindow is the most memory for reading a zstd archive, as of the program zstd.
const maxWindow = 128 << 20

type archive struct {
	name    string
	endings []string
	begins  func(head []byte) bool
	open    func(io.Reader) (io.Reader, error)
}

var archives = []archive{
	{"gzip", []string{".gz", ".gzip"},
		func(head []byte) bool { return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) },
		func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"zstd", []string{".zst", ".zstd"},
		func(head []byte) bool {
			skippable := len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18})
			return skippable || bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd})
		},
		func(r io.Reader) (io.Reader, error) {
			// With a single decoder no goroutine is left behind, so that nothing has to be closed.
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		}},
}

func cutArchive(name string) (inner string, a *archive) {
	ending := strings.ToLower(path.Ext(name))
	for i, a := range archives {
		if slices.Contains(a.endings, ending) {
			return name[:len(name)-len(ending)], &archives[i]
		}
	}
	return name, nil
}

// unpack decompresses an input that begins like an archive, and reports whether it does.
func unpack(r io.Reader, name string) (plain *bufio.Reader, packed bool, err error) {
	const buffer = 256 << 10
	plain = bufio.NewReaderSize(r, buffer)
	head, err := peek(plain, 4)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	for i := range archives {
		if a := &archives[i]; a.begins(head) {
			u := &unpacker{name: name, archive: a, from: watched{r: plain}}
			if u.body, err = a.open(&u.from); err != nil {
				return nil, true, u.explain(err)
			}
			return bufio.NewReaderSize(u, buffer), true, nil
		}
	}
	return plain, false, nil
}

// peek returns up to n bytes, unread. It waits for one: the rest of a pipe may come late.
func peek(r *bufio.Reader, n int) ([]byte, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	return r.Peek(min(n, r.Buffered()))
}

// watched remembers how the stream itself failed.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(data []byte) (int, error) {
	n, err := w.r.Read(data)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

type unpacker struct {
	name    string
	archive *archive
	from    watched
	body    io.Reader
}

func (u *unpacker) Read(data []byte) (int, error) {
	n, err := u.body.Read(data)
	if err != nil && err != io.EOF {
		err = u.explain(err)
	}
	return n, err
}

// explain tells a damaged archive, which stays damaged, from a stream that broke.
func (u *unpacker) explain(err error) error {
	if u.from.err != nil {
		return u.from.err
	}
	wrong := &gpumux.SourceError{Name: u.name, Problem: fmt.Sprintf("the %s archive is damaged: %v", u.archive.name, err),
		Hint: "fetch or compress it again"}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		wrong.Problem = fmt.Sprintf("the %s archive is cut off", u.archive.name)
	}
	return wrong
}
