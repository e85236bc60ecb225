package store

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store/s3test"
	"github.com/stretchr/testify/require"
)

func value(index int64, text string) gpumux.Result {
	return gpumux.Result{Index: index, Value: json.RawMessage(text)}
}

func fault(index int64, kind gpumux.Kind) gpumux.Result {
	return gpumux.Result{Index: index, Fault: &gpumux.Fault{Kind: kind, Message: "a <b> & c"}}
}

func TestPart_Lines(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		results := []gpumux.Result{
			value(1203, "null"),
			{Index: 1200, Value: json.RawMessage("{\n \"index\": 7,\r\n\"fault\": \"<é>\"}"), Output: "a\n\"b\" <c>\xff"},
			fault(1201, gpumux.DeviceOOM),
		}
		require.NoError(t, s.WritePart(ctx, "maps/m/parts", 1200, 1300, 0, results))
		require.EqualValues(t, 1203, results[0].Index, "the caller's slice stays as it was")
		require.Equal(t, `{"index":1200,"value":{  "index": 7,  "fault": "<é>"},"output":"a\n\"b\" <c>\ufffd"}`+"\n"+
			`{"index":1201,"fault":{"kind":"device_oom","message":"a <b> & c"}}`+"\n"+
			`{"index":1203,"value":null}`+"\n",
			get(t, s, "maps/m/parts/000000001200-000000001300.0000.jsonl"))
		back, err := s.ReadPart(ctx, "maps/m/parts", 1200, 1300, 0)
		require.NoError(t, err)
		require.Len(t, back, 3)
		require.Equal(t, results[2], back[1])
		require.Equal(t, results[0], back[2])
		require.Equal(t, "a\n\"b\" <c>\ufffd", back[0].Output)
		_, err = s.ReadPart(ctx, "maps/m/parts", 1200, 1300, 1)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestPart_Finished(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		got, err := s.Finished(ctx, "p", 0, 70)
		require.NoError(t, err)
		require.Zero(t, got.Items)
		require.Zero(t, got.Seq)
		require.False(t, got.Has(0))

		require.NoError(t, s.WritePart(ctx, "p", 0, 70, 0, nil))
		require.NoError(t, s.WritePart(ctx, "p", 0, 70, 0, []gpumux.Result{value(0, "1"), fault(69, gpumux.Crash)}))
		require.NoError(t, s.WritePart(ctx, "p", 0, 70, 1, []gpumux.Result{value(1, "1"), fault(5, gpumux.Crash), value(69, "1")}))
		require.NoError(t, s.WritePart(ctx, "p", 70, 80, 0, []gpumux.Result{value(70, "1")}))
		got, err = s.Finished(ctx, "p", 0, 70)
		require.NoError(t, err)
		require.Equal(t, 2, got.Seq)
		require.EqualValues(t, 4, got.Items)
		require.EqualValues(t, 2, got.Succeeded)
		require.EqualValues(t, 2, got.Failed, "of two results for item 69 the first counts")
		require.Equal(t, map[gpumux.Kind]int64{gpumux.Crash: 2}, got.Faults)
		for i := int64(-1); i < 90; i++ {
			require.Equal(t, i == 0 || i == 1 || i == 5 || i == 69, got.Has(i), i)
		}
		spans, err := s.Spans(ctx, "p")
		require.NoError(t, err)
		require.Equal(t, []gpumux.Span{{Start: 0, End: 2}, {Start: 5, End: 6}, {Start: 69, End: 71}}, spans)
		spans, err = s.Spans(ctx, "none")
		require.NoError(t, err)
		require.Empty(t, spans)
	})
}

func TestPart_ATakenNumberIsNeverReplaced(t *testing.T) {
	check := func(t *testing.T, s *Store) {
		ctx := t.Context()
		var wait sync.WaitGroup
		for i := range int64(8) {
			wait.Go(func() {
				require.NoError(t, s.WritePart(ctx, "p", 0, 8, 0, []gpumux.Result{value(i, "1")}))
			})
		}
		wait.Wait()
		got, err := s.Finished(ctx, "p", 0, 8)
		require.NoError(t, err)
		require.Equal(t, 8, got.Seq)
		require.EqualValues(t, 8, got.Items)
	}
	eachStore(t, check)
	t.Run("server without conditions", func(t *testing.T) {
		server := s3test.New(t)
		server.RefuseConditions()
		s := open(t, server.URL(""), Options{})
		for i := range int64(3) {
			require.NoError(t, s.WritePart(t.Context(), "p", 0, 8, 0, []gpumux.Result{value(i, "1")}))
		}
		got, err := s.Finished(t.Context(), "p", 0, 8)
		require.NoError(t, err)
		require.Equal(t, 3, got.Seq)
	})
}

func TestPart_RefusesWhatIsWrong(t *testing.T) {
	s := open(t, "mem://", Options{})
	for want, results := range map[string][]gpumux.Result{
		"result 10 lies outside the chunk": {value(10, "1")},
		"or is there twice":                {value(1, "1"), value(1, "1")},
		"must have either a value or a":    {{Index: 1}},
		"either a value or a fault":        {{Index: 1, Value: json.RawMessage("1"), Fault: &gpumux.Fault{Kind: "crash"}}},
		`the value is not JSON: "NaN"`:     {value(1, "NaN")},
		"it has no kind":                   {fault(1, "")},
	} {
		require.ErrorContains(t, s.WritePart(t.Context(), "p", 0, 10, 0, results), want)
	}
	require.ErrorContains(t, s.WritePart(t.Context(), "p", 5, 5, 0, nil), "do not make a part")
	require.ErrorContains(t, s.WritePart(t.Context(), "../p", 0, 5, 0, nil), "is not a key")
	require.ErrorContains(t, s.WritePart(t.Context(), "p", 0, 5, 2, []gpumux.Result{value(1, "1")}), "use the number that Finished gives")
	spans, err := s.Spans(t.Context(), "p")
	require.NoError(t, err)
	require.Empty(t, spans)
}

func TestPart_DamageIsNamed(t *testing.T) {
	const name = "p/000000000000-000000000010.0000.jsonl"
	for content, want := range map[string]string{
		"x\n":                                           "line 1: not a result",
		`{"index":1,"value":1}`:                         "not a result",
		`{"index":,"value":1}` + "\n":                   "not a result",
		`{"index":1,"other":1}` + "\n":                  "neither a value nor a fault",
		`{"index":1,"fault":{"x":1}}` + "\n":            "neither a value nor a fault",
		`{"index":10,"value":1}` + "\n":                 "index 10 is out of order or outside the part",
		strings.Repeat(`{"index":0,"value":1}`+"\n", 2): "line 2: index 0 is out of order",
	} {
		s := open(t, "mem://", Options{})
		put(t, s, name, content)
		_, err := s.Finished(t.Context(), "p", 0, 10)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "part mem:///"+name)
		_, err = s.Spans(t.Context(), "p")
		require.ErrorContains(t, err, want)
		_, err = s.Merge(t.Context(), gpumux.MergeInput{Parts: "p", Output: "out", Items: 2}, nil)
		require.ErrorContains(t, err, want)
	}
}

func TestPart_OtherNamesAreIgnored(t *testing.T) {
	for _, name := range []string{"results.jsonl", "000000000000-000000000010.jsonl", "0-1.0.jsonl", "000000000000-000000000000.0000.jsonl",
		"000000000000-000000000010.0000.json", "-00000000001-000000000010.0000.jsonl", "00000000000x-000000000010.0000.jsonl"} {
		_, ok := parsePart(name)
		require.False(t, ok, name)
	}
	p, ok := parsePart("1234567890123-1234567890124.12345.jsonl")
	require.True(t, ok)
	require.Equal(t, part{1234567890123, 1234567890124, 12345}, p)
}

// Large values are not copied on their way, whatever stands in them.
func TestPart_LargeValues(t *testing.T) {
	s := open(t, "file://"+t.TempDir(), Options{})
	long := strings.Repeat("x", 3*wholeValue)
	results := []gpumux.Result{
		{Index: 0, Value: json.RawMessage(`"` + long + `"`), Output: "said\n"},
		{Index: 1, Value: json.RawMessage(`1`)},
		{Index: 2, Value: json.RawMessage("[\n\"" + long + "\",\r\n2]")},
	}
	require.NoError(t, s.WritePart(t.Context(), "m/parts", 0, 3, 0, results))
	got, err := s.ReadPart(t.Context(), "m/parts", 0, 3, 0)
	require.NoError(t, err)
	require.Equal(t, results[:2], got[:2])
	require.Equal(t, json.RawMessage("[ \""+long+"\",  2]"), got[2].Value)
}

func TestItems_LongOnesAreTheCallersToKeep(t *testing.T) {
	s := open(t, "file://"+t.TempDir(), Options{})
	var want []string
	for i, size := range []int{5 << 20, 10, 300 << 10, 256 << 10, 256<<10 - 1, 1 << 20, 17 << 20, 3, 600 << 10, 600 << 10} {
		want = append(want, `"`+strings.Repeat(string(rune('a'+i)), size)+`"`)
	}
	spooled, err := Spool(strings.NewReader(strings.Join(want, "\n")), SpoolOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	source, err := s.PutSource(t.Context(), spooled)
	require.NoError(t, err)
	for start := range want {
		var got []json.RawMessage
		for item, err := range s.Items(t.Context(), source, int64(start), int64(len(want))) {
			require.NoError(t, err)
			got = append(got, item)
			require.LessOrEqual(t, cap(item), 2*len(item)+64, "a long item holds no memory that it does not need")
		}
		require.Len(t, got, len(want)-start)
		for i, item := range got {
			require.Equal(t, want[start+i], string(item))
		}
	}
}
