package gpumux_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestFloat_ComesBack(t *testing.T) {
	numbers := []gpumux.Float{1.5, gpumux.Float(math.NaN()), gpumux.Float(math.Inf(1)), gpumux.Float(math.Inf(-1)), -0.1}
	written, err := json.Marshal(numbers)
	require.NoError(t, err)
	require.JSONEq(t, `[1.5,"NaN","Infinity","-Infinity",-0.1]`, string(written))
	require.NotContains(t, string(written), `"NaN"`)
	for _, text := range []string{string(written), `[1.5,"NaN","Infinity","-Infinity",-0.1]`} {
		var got []gpumux.Float
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		require.Equal(t, fmt.Sprint(numbers), fmt.Sprint(got))
	}
	var f gpumux.Float
	require.ErrorContains(t, json.Unmarshal([]byte(`"nan"`), &f), `the text "nan" is no number`)
	require.Error(t, json.Unmarshal([]byte(`true`), &f))
}
