package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

func TestTokens(t *testing.T) {
	count := &tokens{price: 2.5}
	for _, line := range []string{
		`{"index":0,"value":{"choices":[],"usage":{"prompt_tokens":400000,"completion_tokens":300000,"total_tokens":700000}}}`,
		`{"index":1,"value":{"usage":{"input_tokens":300000,"output_tokens":150000}}}`,
		`{"index":2,"key":"a","value":{"text":"hi","prompt_tokens":540000,"completion_tokens":50000}}`,
		`{"index":3,"fault":{"kind":"timeout","message":"late"}}`, `{"index":4,"value":[1]}`, `{"index":5,"value":"text"}`,
		`{"index":6,"value":{"usage":null,"prompt_tokens":null}}`, "",
	} {
		count.add([]byte(line))
	}
	require.Equal(t, tokens{In: 1240000, Out: 500000, price: 2.5}, *count)
	(*tokens)(nil).add([]byte(`{"value":{"prompt_tokens":1}}`))

	end := &ending{Summary: gpumux.Summary{Busy: gpumux.Duration(30 * time.Minute), Elapsed: gpumux.Duration(400 * time.Second)}}
	for _, entry := range []starter.Entry{starter.EntryContinued, starter.EntryRetried, starter.EntryFound, starter.EntryAttached} {
		count.addTo(end, entry)
		require.Equal(t, "1,240,000 in, 500,000 out", end.spent, "some may be of an earlier run")
	}
	count.addTo(end, starter.EntryStarted)
	require.Equal(t, "1,240,000 in, 500,000 out, 1,250/s out\n  cost       1.25, 2.5 per million tokens out", end.spent)
	line, err := json.Marshal(end)
	require.NoError(t, err)
	require.Contains(t, string(line), `"promptTokens":1240000,"completionTokens":500000,"tokensPerSecond":1250,"cost":1.25,"costPerMillion":2.5`)
	(&tokens{In: 1, Out: 2}).addTo(end, starter.EntryStarted)
	require.Equal(t, "1 in, 2 out, 0.3/min out", end.spent)
	line, err = json.Marshal(&ending{})
	require.NoError(t, err)
	require.NotContains(t, string(line), "okens")
}
