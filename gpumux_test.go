package gpumux_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestMapInput_ValidateNamesEveryMistake(t *testing.T) {
	many := make([]json.RawMessage, gpumux.InlineItems+1)
	for i := range many {
		many[i] = json.RawMessage(`0`)
	}
	for name, c := range map[string]struct {
		in     string
		fields []string
	}{
		"nothing":          {`{}`, []string{"task", "items"}},
		"empty items":      {`{"task":"f","items":[]}`, nil},
		"two sources":      {`{"task":"f","items":[1],"range":{"start":0,"end":1}}`, []string{"items"}},
		"key":              {`{"task":"f","items":[{"a":1}],"key":"id"}`, []string{"key"}},
		"key of numbers":   {`{"task":"f","range":{"start":0,"end":1},"key":"id"}`, []string{"key"}},
		"good key":         {`{"task":"f","items":[{"id":1},2],"key":"id","withItem":true}`, nil},
		"values of none":   {`{"task":"f","source":"results:"}`, []string{"source"}},
		"own values":       {`{"task":"f","source":"results:a.jsonl","output":"a.jsonl"}`, []string{"output"}},
		"columns":          {`{"task":"f","source":"a/x.parquet","columns":["b","a"]}`, nil},
		"columns of a URL": {`{"task":"f","source":"s3://bucket/x.PARQUET?region=eu-west-1","columns":["a"]}`, nil},
		"columns of Arrow": {`{"task":"f","source":"s3://bucket/x.ARROW?region=eu-west-1","columns":["a"]}`, []string{"columns"}},
		"columns of lines": {`{"task":"f","source":"x.jsonl","columns":["a"]}`, []string{"columns"}},
		"of values":        {`{"task":"f","source":"results:x.parquet","columns":["a"]}`, []string{"columns"}},
		"of items":         {`{"task":"f","items":[],"columns":["a"]}`, []string{"columns"}},
		"column twice":     {`{"task":"f","source":"x.parquet","columns":["a","b","a"]}`, []string{"columns"}},
		"column by number": {`{"task":"f","source":"x.parquet","columns":["a",1]}`, []string{"columns[1]"}},
		"range":            {`{"task":"f","range":{"start":2,"end":1}}`, []string{"range"}},
		"endless range":    {`{"task":"f","range":{"start":-9223372036854775808,"end":1}}`, []string{"range"}},
		"pool":             {`{"task":"f","items":[],"ladder":["gpu","GPU 1"]}`, []string{"ladder[1]"}},
		"one device":       {`{"task":"f","items":[],"ladder":["gpu@node1/GPU-5c"]}`, []string{"ladder[0]"}},
		"mode":             {`{"task":"f","items":[],"mode":"proxy"}`, []string{"mode"}},
		"counts":           {`{"task":"f","items":[],"chunk":-1,"window":50000,"attempts":101,"priority":9,"timeout":"-1s"}`, []string{"chunk", "timeout", "attempts", "window", "priority"}},
		"stages":           {`{"stages":[{"task":"f","ladder":["cpu"],"keep":true},{"task":"g","attempts":3}],"items":[]}`, nil},
		"task and stages":  {`{"task":"f","stages":[{"task":"g"}],"items":[]}`, []string{"task"}},
		"bad stages": {`{"stages":[{"task":"f","ladder":["GPU 1"],"chunk":-1},{"timeout":"-1s","mode":"x"}],"items":[]}`,
			[]string{"stages[0].ladder[0]", "stages[0].chunk", "stages[1].task", "stages[1].mode", "stages[1].timeout"}},
		"many stages":      {`{"stages":[` + strings.Repeat(`{"task":"f"},`, gpumux.MaxStages) + `{"task":"f"}],"items":[]}`, []string{"stages"}},
		"deadlines":        {`{"task":"f","items":[],"poolTimeout":"-1s","mapTimeout":1e9}`, []string{"poolTimeout", "mapTimeout"}},
		"no unit":          {`{"task":"f","items":[],"timeout":3e-8,"patience":"1us","backoff":1e-9}`, []string{"timeout", "backoff", "patience"}},
		"good deadlines":   {`{"task":"f","items":[],"poolTimeout":"5m","mapTimeout":86400.5}`, nil},
		"output":           {`{"task":"f","items":[],"output":"maps/a/r.jsonl"}`, nil},
		"output as URL":    {`{"task":"f","items":[],"output":"s3://bucket/a b/r.jsonl"}`, nil},
		"output above":     {`{"task":"f","items":[],"output":"a/.."}`, []string{"output"}},
		"output below":     {`{"task":"f","items":[],"output":"file:///data/a/../b.jsonl"}`, []string{"output"}},
		"output attrs":     {`{"task":"f","items":[],"output":"x.attrs"}`, []string{"output"}},
		"output attrs URL": {`{"task":"f","items":[],"output":"s3://bucket/x.attrs"}`, []string{"output"}},
		"output folder":    {`{"task":"f","items":[],"output":"s3://bucket/a/"}`, []string{"output"}},
		"output bucket":    {`{"task":"f","items":[],"output":"s3://bucket"}`, []string{"output"}},
		"output own":       {`{"task":"f","items":[],"output":"store.json"}`, []string{"output"}},
		"output parts":     {`{"task":"f","items":[],"output":"maps/a/r.jsonl.parts/b"}`, []string{"output"}},
		"output path":      {`{"task":"f","items":[],"output":"/etc/passwd"}`, []string{"output"}},
		"over source":      {`{"task":"f","source":"a/x.jsonl","output":"a/x.jsonl"}`, []string{"output"}},
		"misspelt":         {`{"task":"f","items":[],"lader":["cpu"],"Task":"f"}`, []string{"lader"}},
		"broken arg":       {`{"task":"f","items":[],"arg":"` + strings.Repeat("x", gpumux.MaxArg) + `"}`, []string{"arg"}},
		"broken args":      {`{"stages":[{"task":"f","arg":"` + strings.Repeat("x", gpumux.MaxArg) + `"},{"task":"g","retryOn":["A"," B",""]}],"items":[]}`, []string{"stages[0].arg", "stages[1].retryOn[1]", "stages[1].retryOn[2]"}},
		"good settings":    {`{"task":"f","items":[{"a":1}],"mode":"fresh","arg":{"a":1},"chunk":5,"window":2,"attempts":3,"priority":1,"timeout":"90s"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var in gpumux.MapInput
			require.NoError(t, json.Unmarshal([]byte(c.in), &in))
			err := in.Validate()
			if c.fields == nil {
				require.NoError(t, err)
				return
			}
			var bad *gpumux.InputError
			require.ErrorAs(t, err, &bad)
			var fields []string
			for _, p := range bad.Problems {
				fields = append(fields, p.Field)
				require.Contains(t, err.Error(), p.Field+": "+p.Message)
			}
			require.Equal(t, c.fields, fields)
		})
	}
	require.ErrorContains(t, gpumux.MapInput{Task: "f", Items: many}.Validate(), "give source")
	require.ErrorContains(t, gpumux.MapInput{Task: "f", Items: many[:1], Timeout: 30}.Validate(),
		"timeout: 30ns is less than 1ms; write 30 s as gpumux.Duration(30*time.Second) in Go")
	broken := []json.RawMessage{json.RawMessage(`{"a":`)}
	require.ErrorContains(t, gpumux.MapInput{Task: "f", Items: broken}.Validate(), "item 0 is not JSON")
}

func TestSize_ReadsWhatPeopleWrite(t *testing.T) {
	for text, want := range map[string]gpumux.Size{
		"8GiB": 8 << 30, "8 gib": 8 << 30, "8G": 8 << 30, "8Gi": 8 << 30, "512MB": 512e6, "1.5g": 3 << 29, "17": 17, "17B": 17, "0": 0, "2T": 2 << 40,
	} {
		got, err := gpumux.ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "GiB", "-1G", "8 apples", "1e30G", "NaN"} {
		_, err := gpumux.ParseSize(text)
		require.ErrorContains(t, err, "is not a size", text)
	}
	require.Equal(t, "8GiB", gpumux.Size(8<<30).String())
	require.Equal(t, "1.5KiB", gpumux.Size(1536).String())
	require.Equal(t, "17B", gpumux.Size(17).String())
}

func TestDuration_ReadsTextAndSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{`"90s"`: 90 * time.Second, `"2h"`: 2 * time.Hour, `5`: 5 * time.Second, `0.5`: time.Second / 2, `"3"`: 3 * time.Second} {
		var d gpumux.Duration
		require.NoError(t, json.Unmarshal([]byte(text), &d), text)
		require.Equal(t, want, time.Duration(d), text)
	}
	var d gpumux.Duration
	require.ErrorContains(t, json.Unmarshal([]byte(`"soon"`), &d), "is not a duration")
}

// JSON has seconds as a number, which any language reads, and text is for people. What
// was written is read again to the nanosecond.
func TestDuration_WritesSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		62500 * time.Millisecond: "62.5", 0: "0", 2 * time.Hour: "7200", 1: "0.000000001", -time.Second: "-1",
		40*24*time.Hour - 1: "3455999.999999999",
	} {
		data, err := json.Marshal(gpumux.Duration(d))
		require.NoError(t, err)
		require.Equal(t, want, string(data))
		var back gpumux.Duration
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, d, time.Duration(back))
	}
	written, err := gpumux.Duration(90 * time.Second).MarshalText()
	require.NoError(t, err)
	require.Equal(t, "1m30s", string(written))
}

func TestFault_SaysWhatWhereAndWhatNext(t *testing.T) {
	f := &gpumux.Fault{
		Kind: gpumux.FaultDeviceOOM, Class: "torch.OutOfMemoryError", Message: "CUDA out of memory", Slot: "gpu/1", Device: "GPU-5c",
		Budget: 8 << 30, Peak: 7 << 30, Requested: 2 << 30, Hint: "use a smaller batch",
	}
	require.Equal(t, "device_oom in slot gpu/1 on GPU-5c: torch.OutOfMemoryError: CUDA out of memory; budget 8GiB, peak 7GiB, "+
		"asked for 2GiB; use a smaller batch", f.Error())
}

func TestKinds_AreAll(t *testing.T) {
	source, err := os.ReadFile("fault.go")
	require.NoError(t, err)
	var declared []gpumux.FaultKind
	for _, found := range regexp.MustCompile(`(?m)^\t\w+ FaultKind = "(\w+)"$`).FindAllSubmatch(source, -1) {
		declared = append(declared, gpumux.FaultKind(found[1]))
	}
	require.NotEmpty(t, declared)
	require.Equal(t, declared, gpumux.Kinds())
}
