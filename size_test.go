package gpumux

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTolerance_Count(t *testing.T) {
	for text, want := range map[Tolerance]int64{"": -1, "0": 0, "10": 10, "5%": 10, "0%": 0, "2.5%": 5, "0.4%": 0, "100%": 201} {
		require.Equal(t, want, text.Count(201), text)
	}
	require.EqualValues(t, 57, Tolerance("0.57%").Count(10_000))
}

func TestTolerance_InAnInput(t *testing.T) {
	read := func(value string) (MapInput, error) {
		var in MapInput
		err := json.Unmarshal([]byte(`{"task":"t","range":{"start":0,"end":9},"maxFailures":`+value+`}`), &in)
		require.NoError(t, err)
		return in, in.Validate()
	}
	for value, want := range map[string]Tolerance{`3`: "3", `"3"`: "3", `"2.5%"`: "2.5%", `null`: "", `0`: "0"} {
		in, err := read(value)
		require.NoError(t, err, value)
		require.Equal(t, want, in.MaxFailures)
		data, err := json.Marshal(in)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &in))
		require.NoError(t, in.Validate())
		require.Equal(t, want, in.MaxFailures)
	}
	for _, value := range []string{`-1`, `"many"`, `1.5`, `"101%"`, `"-1%"`, `"NaN%"`, `true`, `[1]`, `"%"`} {
		_, err := read(value)
		require.ErrorContains(t, err, "maxFailures", value)
	}
	err := MapInput{Task: "t", Range: &Range{}, MaxFailures: "3", Backoff: -1}.Validate()
	require.ErrorContains(t, err, "backoff: -1ns is outside")
}
