package gpumux_test

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// A handle travels as one object with one field, alone and within other values.
func ExampleResident() {
	var model gpumux.Resident
	err := json.Unmarshal([]byte(`{"gpumux.handle": {"process": "77-9f", "key": "model", "type": "float32", "shape": [2, 3], "bytes": 24}}`), &model)
	if err != nil {
		log.Fatal(err)
	}
	item, err := json.Marshal(map[string]any{"model": model.On("cuda:1"), "x": 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(item))
	// Output:
	// {"model":{"gpumux.handle":{"process":"77-9f","key":"model","type":"float32","shape":[2,3],"bytes":24,"to":"cuda:1"}},"x":1}
}

func TestHandle_ReadsNothingElse(t *testing.T) {
	for _, text := range []string{`{}`, `5`, `{"key":"model"}`, `{"gpumux.handle":{}}`, `{"gpumux.handle":5}`} {
		var h gpumux.Resident
		require.ErrorContains(t, json.Unmarshal([]byte(text), &h), "is no handle; a task that returns gpumux.keep(value) gives one", text)
	}
	h := gpumux.Resident{Host: "node1", Device: "CPU", Process: "7-a", Key: "k", Type: "float32", Shape: []int64{4}, Bytes: 16}
	require.Equal(t, `"k" (float32[4], 16B) in process 7-a on CPU of node1`, h.String())
}

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
