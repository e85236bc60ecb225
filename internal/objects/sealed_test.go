package objects

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// ring is Keys in memory.
type ring struct {
	current string
	keys    map[string]string
}

func (r ring) Current() string { return r.current }

func (r ring) Derive(id string, salt []byte, purpose string) ([]byte, error) {
	key, known := r.keys[id]
	if !known {
		return nil, fmt.Errorf("there is no key %s", id)
	}
	return hkdf.Key(sha256.New, []byte(key), salt, purpose, 32)
}

var oldRing = ring{"a", map[string]string{"a": "one"}}

func putObject(t testing.TB, s *Bucket, key string, data []byte) {
	t.Helper()
	w, err := s.Create(t.Context(), key)
	require.NoError(t, err)
	defer w.Abort()
	for len(data) > 0 {
		n := min(len(data), 1+rand.IntN(3*sealSegment))
		_, err := w.Write(data[:n])
		require.NoError(t, err)
		data = data[n:]
	}
	require.NoError(t, w.Close())
}

func getObject(ctx context.Context, s *Bucket, key string, offset, length int64) ([]byte, int64, error) {
	o, err := s.Read(ctx, key, offset, length)
	if err != nil {
		return nil, 0, err
	}
	defer o.Close()
	data, err := io.ReadAll(o)
	return data, o.Size(), err
}

func TestSealed_AnyStretchOfAnySizeIsWhatWasWritten(t *testing.T) {
	for name, url := range map[string]string{"disk": "file://" + t.TempDir(), "memory": "mem://"} {
		t.Run(name, func(t *testing.T) {
			s := open(t, url, oldRing)
			for _, size := range []int64{0, 1, sealSegment - 1, sealSegment, sealSegment + 1, 2 * sealSegment, 5*sealSegment + 77} {
				data := make([]byte, size)
				for i := range data {
					data[i] = byte(rand.Uint32())
				}
				putObject(t, s, "object", data)
				got, whole, err := getObject(t.Context(), s, "object", 0, -1)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data, got), "%d bytes", size)
				require.Equal(t, size, whole)
				stretches := [][2]int64{{0, 0}, {size, -1}, {size, 9}, {0, size}, {0, 1}, {0, int64(sealHead)}}
				for range 40 {
					from := rand.Int64N(size + 1)
					stretches = append(stretches, [2]int64{from, rand.Int64N(size - from + 2)}, [2]int64{from, -1})
				}
				for _, at := range stretches {
					want := data[min(at[0], size):]
					if at[1] >= 0 {
						want = want[:min(at[1], int64(len(want)))]
					}
					got, whole, err := getObject(t.Context(), s, "object", at[0], at[1])
					require.NoError(t, err, "%d bytes, %v", size, at)
					require.True(t, bytes.Equal(want, got), "%d bytes, %v", size, at)
					require.Equal(t, size, whole)
				}
			}
		})
	}
}

// A reader notices every object that was cut, changed, moved or put together from two.
func TestSealed_NoticesEveryChange(t *testing.T) {
	dir := t.TempDir()
	data := bytes.Repeat([]byte("some text "), 3*sealSegment/10)
	const lying = sealSegment + sealTag
	head := func(b []byte) []byte { return b[:sealHead] }
	segment := func(b []byte, n int) []byte { return b[sealHead+n*lying:][:min(lying, len(b)-sealHead-n*lying)] }
	for name, change := range map[string]func(b, other []byte) []byte{
		"a bit of a segment": func(b, _ []byte) []byte { b[sealHead+lying+5] ^= 1; return b },
		"a bit of the salt":  func(b, _ []byte) []byte { b[sealCheck-1] ^= 1; return b },
		"a bit of the check": func(b, _ []byte) []byte { b[sealHead-1] ^= 1; return b },
		"the key's name":     func(b, _ []byte) []byte { b[len(sealMagic)+1] = 'b'; return b },
		"the last byte":      func(b, _ []byte) []byte { return b[:len(b)-1] },
		"the last segment":   func(b, _ []byte) []byte { return b[:sealHead+2*lying] },
		"all but the head":   func(b, _ []byte) []byte { return head(b) },
		"half of the head":   func(b, _ []byte) []byte { return b[:sealHead/2] },
		"more at the end":    func(b, _ []byte) []byte { return append(b, segment(b, 0)...) },
		"two segments swapped": func(b, _ []byte) []byte {
			return bytes.Join([][]byte{head(b), segment(b, 1), segment(b, 0), b[sealHead+2*lying:]}, nil)
		},
		"a segment of another object": func(b, other []byte) []byte { copy(segment(b, 1), segment(other, 1)); return b },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "file://"+dir, ring{"a", map[string]string{"a": "one", "b": "two"}})
			putObject(t, s, "one", data)
			putObject(t, s, "other", data)
			one, err := os.ReadFile(filepath.Join(dir, "one"))
			require.NoError(t, err)
			other, err := os.ReadFile(filepath.Join(dir, "other"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "one"), change(one, other), 0o600))
			got, _, err := getObject(t.Context(), s, "one", 0, -1)
			require.Error(t, err)
			require.ErrorContains(t, err, "/one")
			require.True(t, bytes.HasPrefix(data, got), "what was read before the error is right")
			_, _, err = getObject(t.Context(), s, "one", sealSegment+3, 2*sealSegment)
			if name != "more at the end" {
				require.Error(t, err)
			}
		})
	}
}

func TestSealed_AReplacedObjectIsNotReadWithTheHeadOfTheOldOne(t *testing.T) {
	dir := t.TempDir()
	s, elsewhere := open(t, "file://"+dir, oldRing), open(t, "file://"+dir, oldRing)
	for _, text := range []string{"first", "other"} {
		putObject(t, elsewhere, "object", []byte(text))
		got, _, err := getObject(t.Context(), s, "object", 1, 3)
		require.NoError(t, err)
		require.Equal(t, text[1:4], string(got))
	}
}

// An encrypted object needs as many requests as a plain one, and one more for a stretch
// from its middle.
func TestSealed_RequestsToAServer(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""), oldRing)
	data := bytes.Repeat([]byte("0123456789"), 3*sealSegment/10)
	putObject(t, s, "object", data)
	server.Truncate(3)
	got, _, err := getObject(t.Context(), s, "object", 0, -1)
	require.NoError(t, err, "it goes on after broken connections")
	require.True(t, bytes.Equal(data, got))
	require.Zero(t, server.Truncating())
	for _, c := range []struct{ from, length, requests int64 }{{0, -1, 1}, {0, 10, 1}, {0, 0, 1}, {sealSegment + 1, 10, 2}, {sealSegment - 1, 2, 2}, {7, -1, 2}} {
		server.Requests()
		got, size, err := getObject(t.Context(), s, "object", c.from, c.length)
		require.NoError(t, err)
		want := data[c.from:]
		if c.length >= 0 {
			want = want[:c.length]
		}
		require.True(t, bytes.Equal(want, got))
		require.EqualValues(t, len(data), size)
		require.Len(t, server.Requests(), int(c.requests), "%v", c)
	}
}

// A connection that breaks within the head of an object is no damage to the object.
func TestSealed_AConnectionBreaksInTheHead(t *testing.T) {
	server := s3test.New(t)
	data := bytes.Repeat([]byte("0123456789"), 3*sealSegment/10)
	putObject(t, open(t, server.URL(""), oldRing), "object", data)
	var breaks atomic.Int32
	breaking := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/bucket/object" || breaks.Add(-1) < 0 {
			server.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()[:sealHead/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer breaking.Close()
	s := open(t, "s3://bucket?region=eu-west-1&endpoint="+breaking.URL, oldRing)
	for _, from := range []int64{0, sealSegment + 1} {
		breaks.Store(2)
		got, _, err := getObject(t.Context(), s, "object", from, 10)
		require.NoError(t, err)
		require.Equal(t, data[from:][:10], got)
		require.Negative(t, breaks.Load())
	}
}

// To rotate keys, add one that encrypts. The older ones still decrypt.
func TestSealed_KeysRotate(t *testing.T) {
	url := "file://" + t.TempDir()
	putObject(t, open(t, url, oldRing), "old", []byte("text"))
	both := open(t, url, ring{"b", map[string]string{"a": "one", "b": "two"}})
	putObject(t, both, "new", []byte("text"))
	for _, key := range []string{"old", "new"} {
		got, _, err := getObject(t.Context(), both, key, 0, -1)
		require.NoError(t, err)
		require.Equal(t, "text", string(got))
	}
	late := open(t, url, ring{"b", map[string]string{"b": "two"}})
	_, _, err := getObject(t.Context(), late, "old", 0, -1)
	var key *KeyError
	require.ErrorAs(t, err, &key)
	require.ErrorContains(t, err, "there is no key a")
	_, _, err = getObject(t.Context(), open(t, url, ring{"a", map[string]string{"a": "changed"}}), "old", 0, -1)
	require.ErrorAs(t, err, &key)
	require.ErrorContains(t, err, "another key of the same name")
}

func TestSealed_AFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir, ring{strings.Repeat("x", 64), nil})
	_, err := s.Create(t.Context(), "object")
	require.ErrorContains(t, err, "64 bytes")
	left, err := os.ReadDir(filepath.Join(dir, names.Scratch))
	require.NoError(t, err)
	require.Empty(t, left)
	s = open(t, "file://"+dir, ring{"a", nil})
	_, err = s.Create(t.Context(), "object")
	require.ErrorContains(t, err, "there is no key a")
	require.False(t, errors.Is(err, os.ErrNotExist))
}

func FuzzSealed_Reading(f *testing.F) {
	dir := f.TempDir()
	s := open(f, "file://"+dir, oldRing)
	putObject(f, s, "object", []byte("text"))
	whole, err := os.ReadFile(filepath.Join(dir, "object"))
	require.NoError(f, err)
	f.Add(whole, int64(0), int64(-1))
	f.Add(whole[:sealHead], int64(1), int64(2))
	f.Add([]byte(sealMagic), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, lying []byte, offset, length int64) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "fuzzed"), lying, 0o600))
		s := open(t, "file://"+dir, oldRing)
		got, _, err := getObject(t.Context(), s, "fuzzed", max(0, offset), length)
		if err == nil && !bytes.Equal(lying, whole) {
			require.Empty(t, got, "nothing passes that was not encrypted with the key")
		}
	})
}
