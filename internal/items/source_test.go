package items

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

func itemsOf(t testing.TB, s *store, src contract.Source, start, end int64) []string {
	texts := []string{}
	for item, err := range s.Sources.Items(t.Context(), src, start, end) {
		require.NoError(t, err)
		texts = append(texts, string(item))
	}
	return texts
}

// numbered makes n items, some of them long, and an untidy file with them.
func numbered(n int) (items []string, tidy, untidy string) {
	var a, b strings.Builder
	b.WriteString(bom)
	for i := range n {
		item := fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", rand.IntN(40)*rand.IntN(40)))
		items = append(items, item)
		a.WriteString(item + "\n")
		b.WriteString(strings.Repeat("\r\n", rand.IntN(3)) + " " + item + "\t\r\n")
	}
	return items, a.String(), strings.TrimRight(b.String(), "\r\n")
}

func TestSource_EveryStretch(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		for _, n := range []int{0, 1, 127, 128, 129, 1000} {
			want, tidy, untidy := numbered(n)
			stored, err := s.Sources.Put(t.Context(), spool(t, untidy, JSONLines))
			require.NoError(t, err)
			require.Equal(t, tidy, get(t, s, stored.URL))
			key := fmt.Sprintf("in/%d.ndjson", n)
			put(t, s, key, untidy)
			indexed, err := s.Sources.Find(t.Context(), key, fmt.Sprintf("maps/%d/source.index", n))
			require.NoError(t, err)
			require.Equal(t, s.Objects.Locate(key), indexed.URL)
			require.EqualValues(t, len(untidy), indexed.Bytes)
			for _, src := range []contract.Source{stored, indexed} {
				require.EqualValues(t, n, src.Items)
				require.Equal(t, append([]string{}, want...), itemsOf(t, s, src, 0, int64(n)))
				for range 20 {
					start := rand.IntN(n + 1)
					end := start + rand.IntN(n+1-start)
					require.Equal(t, append([]string{}, want[start:end]...), itemsOf(t, s, src, int64(start), int64(end)))
				}
			}
		}
	})
}

func TestSource_PutTwiceIsKeptOnce(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	in := spool(t, "1\n2\n", JSONLines)
	first, err := s.Sources.Put(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []string{"sources/" + in.Hash + ".index", "sources/" + in.Hash + ".jsonl"}, server.Keys())
	server.Requests()
	second, err := s.Sources.Put(t.Context(), spool(t, "1\n\n2", JSONLines))
	require.NoError(t, err)
	require.Equal(t, first, second)
	for _, request := range server.Requests() {
		require.NotContains(t, request, "PUT")
	}
}

func TestSource_ReadsOnlyWhatItNeeds(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	src, err := s.Sources.Put(t.Context(), spool(t, strings.Repeat("12345\n", 100_000), JSONLines))
	require.NoError(t, err)
	require.Equal(t, []string{"12345"}, itemsOf(t, s, src, 0, 1))
	server.Requests()
	require.Len(t, itemsOf(t, s, src, 50_000, 50_001), 1)
	path := strings.TrimPrefix(src.URL, "s3:/")
	block := 50_000 / 128
	require.Equal(t, []string{
		fmt.Sprintf("GET /bucket/%s bytes=0-15", src.Index),
		fmt.Sprintf("GET /bucket/%s bytes=%d-%d", src.Index, 16+16*block, 16+16*block+31),
		fmt.Sprintf("GET %s bytes=%d-%d", path, block*128*6, (block+1)*128*6-1),
	}, server.Requests())
}

func TestSource_SaysWhatIsWrong(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		put(t, s, "in/bad.jsonl", "1\nx\n")
		put(t, s, "in/bad.csv", "a\n1,2\n")
		put(t, s, "in/bad.txt", "1\n")
		for name, want := range map[string]string{
			"in/bad.jsonl": s.Objects.Locate("in/bad.jsonl") + ":2: not JSON",
			"in/bad.csv":   s.Objects.Locate("in/bad.csv") + ":2: 2 cells",
			"in/bad.txt":   "name it .jsonl",
		} {
			_, err := s.Sources.Find(ctx, name, "maps/1/source.index")
			var mistake *gpumux.SourceError
			require.ErrorAs(t, err, &mistake)
			require.ErrorContains(t, err, want)
			for _, key := range []string{"maps/1/source.index", "maps/1/source.jsonl"} {
				exists, err := s.Objects.Exists(ctx, key)
				require.NoError(t, err)
				require.False(t, exists)
			}
		}
		_, err := s.Sources.Find(ctx, "in/none.jsonl", "maps/1/source.index")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = s.Sources.Find(ctx, "/etc/x.jsonl", "maps/1/source.index")
		require.ErrorContains(t, err, "is a path of a machine; use a key")

		put(t, s, "in/a.jsonl", "1\n2\n3\n")
		src, err := s.Sources.Find(ctx, "in/a.jsonl", "maps/1/source.index")
		require.NoError(t, err)
		fails := func(src contract.Source, start, end int64, want string) {
			count := 0
			for item, err := range s.Sources.Items(ctx, src, start, end) {
				require.Nil(t, item)
				require.ErrorContains(t, err, want)
				count++
			}
			require.Equal(t, 1, count)
		}
		fails(src, 0, 4, "items 0 to 4 are not all in")
		fails(src, -1, 2, "which has 3")
		other := src
		other.Items = 300
		fails(other, 0, 1, s.Objects.Locate("maps/1/source.index")+": damaged, or changed since it was indexed: it has a mark at item 0, and the next one 3 items on")
		other = src
		other.Index = "in/a.jsonl"
		fails(other, 0, 1, "in/a.jsonl")
		put(t, s, "in/a.jsonl", "1\n2\n3\n4\n")
		fails(src, 0, 1, s.Objects.Locate("in/a.jsonl")+": damaged, or changed since it was indexed: it has 8 bytes, and had 6")
		require.NoError(t, s.Objects.Delete(ctx, "in/a.jsonl"))
		fails(src, 0, 1, "file does not exist")
	})
}

func TestSource_SameSizeIsNotTheSameFile(t *testing.T) {
	s := open(t, "mem://")
	put(t, s, "in/a.jsonl", "1\n2\n")
	src, err := s.Sources.Find(t.Context(), "in/a.jsonl", "maps/1/source.index")
	require.NoError(t, err)
	put(t, s, "in/a.jsonl", "1\n3\n")
	for item, err := range s.Sources.Items(t.Context(), src, 0, 1) {
		require.Nil(t, item)
		require.EqualError(t, err, "mem:///in/a.jsonl: damaged, or changed since it was indexed: bytes 0 to 3 are others; "+
			"leave a map's source alone until it is done; start the map anew")
	}
	again, err := s.Sources.Find(t.Context(), "in/a.jsonl", "maps/1/source.index")
	require.NoError(t, err)
	require.Equal(t, []string{"3"}, itemsOf(t, s, again, 1, 2))
}

func TestItems_StopsAndCancels(t *testing.T) {
	s := open(t, "mem://")
	src, err := s.Sources.Put(t.Context(), spool(t, strings.Repeat("1\n", 1000), JSONLines))
	require.NoError(t, err)
	count := 0
	for _, err := range s.Sources.Items(t.Context(), src, 0, 1000) {
		require.NoError(t, err)
		if count++; count == 10 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	count = 0
	var last error
	for _, err := range s.Sources.Items(ctx, src, 0, 1000) {
		if count++; count == 10 {
			cancel()
		}
		last = err
	}
	require.Equal(t, 11, count)
	require.ErrorIs(t, last, context.Canceled)
}

func TestSource_ThatWasPutIsNotReadAgain(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	for _, text := range []string{"", "1\n2\n", strings.Repeat("12345\n", 10_000)} {
		src, err := s.Sources.Put(t.Context(), spool(t, text, JSONLines))
		require.NoError(t, err)
		server.Requests()
		known, err := s.Sources.Find(t.Context(), src.URL, "maps/m/source.index")
		require.NoError(t, err)
		require.Equal(t, src, known)
		for _, request := range server.Requests() {
			if strings.HasSuffix(strings.Fields(request)[1], ".jsonl") {
				require.Contains(t, request, "bytes=0-0", "its size")
			}
			require.NotContains(t, request, "PUT")
		}
	}
	put(t, s, "in/a.jsonl", "1\n2\n")
	src, err := s.Sources.Find(t.Context(), "in/a.jsonl", "maps/m/source.index")
	require.NoError(t, err)
	require.Equal(t, contract.Source{URL: s.Objects.Locate("in/a.jsonl"), Index: "maps/m/source.index", Items: 2, Bytes: 4, Hash: src.Hash}, src)
	require.NotEmpty(t, src.Hash)
	put(t, s, "sources/mine.jsonl", "1\n")
	src, err = s.Sources.Find(t.Context(), "sources/mine.jsonl", "maps/n/source.index")
	require.NoError(t, err)
	require.Equal(t, "maps/n/source.index", src.Index)
}

// A file with other items is another input, also with the same name and size.
func TestSource_HashTellsVersionsApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		hashes := map[string]bool{}
		for _, text := range []string{"1\n2\n", "1\n3\n", "1\n2\n3\n"} {
			put(t, s, "in/a.jsonl", text)
			for range 2 {
				src, err := s.Sources.Find(t.Context(), "in/a.jsonl", "a.index")
				require.NoError(t, err)
				hashes[src.Hash] = true
			}
		}
		require.Len(t, hashes, 3)
	})
}
