package text_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"
)

func TestFieldOf(t *testing.T) {
	item := json.RawMessage(` { "a" : {"id":1}, "b\u0063": [2,"}"] ,"id":"x\"y", "n":null}`)
	for name, want := range map[string]string{"a": `{"id":1}`, "bc": `[2,"}"]`, "id": `"x\"y"`, "n": "null", "x": ""} {
		require.Equal(t, want, string(text.FieldOf(item, name)), name)
	}
	require.Equal(t, `{"b":2}`, string(text.FieldOf(json.RawMessage(`{"id":1,"\u0069d":{"b":2},"x":3}`), "id")), "what the task sees")
	for _, other := range []string{`[{"id":1}]`, `"id"`, `7`, `null`, `{}`} {
		require.Nil(t, text.FieldOf(json.RawMessage(other), "id"))
	}
}

func TestCheckField_NamesTheFieldsThatThereAre(t *testing.T) {
	item := json.RawMessage(`{"id":1,"text":"a"}`)
	require.NoError(t, text.CheckField(item, "id"))
	require.EqualError(t, text.CheckField(item, "key"), `the first item has no field "key"; it has id, text`)
	require.EqualError(t, text.CheckField(json.RawMessage(`{}`), "key"), `the first item has no field "key"; it has none`)
	require.EqualError(t, text.CheckField(json.RawMessage(`[1]`), "key"), `"key" is no field: the first item is no object but [1]`)
}
