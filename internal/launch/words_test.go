package launch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
)

func TestWords_TheItemTakesThePlaceOfBraces(t *testing.T) {
	command := []string{"./x{}", "-i", "{}", "png:{}.png {}"}
	for item, want := range map[string][]string{
		`"a b; $(c) \"d\""`: {"./x{}", "-i", `a b; $(c) "d"`, `png:a b; $(c) "d".png a b; $(c) "d"`},
		`7`:                 {"./x{}", "-i", "7", "png:7.png 7"},
		`{"a":[1]}`:         {"./x{}", "-i", `{"a":[1]}`, `png:{"a":[1]}.png {"a":[1]}`},
		`"{}"`:              {"./x{}", "-i", "{}", "png:{}.png {}"},
	} {
		got, err := launch.Task{Command: command}.CommandArgv(json.RawMessage(item))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, "{}", command[2], "the task's own words stay")
	plain := []string{"{}", "a"}
	got, err := launch.Task{Command: plain}.CommandArgv(json.RawMessage(`"\u0000"`))
	require.NoError(t, err)
	require.Equal(t, plain, got)
	_, err = launch.Task{Command: command}.CommandArgv(json.RawMessage(`"a\u0000"`))
	require.ErrorContains(t, err, "NUL")
	_, err = launch.Task{Command: command}.CommandArgv(json.RawMessage(`"` + strings.Repeat("x", 128<<10) + `"`))
	require.ErrorContains(t, err, "standard input")
}
