package workers

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// A worker fetches arguments once from a store that is no folder, and removes those that
// no call has used for long.
func TestArgFiles_OfAStoreThatIsNoFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(t.Context(), "mem://")
		require.NoError(t, err)
		defer st.Close()
		for name, text := range map[string]string{
			"a.arg": "\x93gpumux 1\nfirst", "b.arg": "\x93gpumux 1\nsecond", "c.json": ` {"large": "` + strings.Repeat("x", gpumux.MaxArg) + `"} `, "d.json": "3\n",
		} {
			require.NoError(t, st.Objects.Put(t.Context(), name, strings.NewReader(text), objects.Creation{}))
		}
		a := &argFiles{store: st}
		set := func(call calls.Call) (text, path string, done func()) {
			env := map[string]string{}
			done, err := a.set(t.Context(), env, call)
			require.NoError(t, err)
			if path = env[argFile]; path != "" {
				read, err := os.ReadFile(path)
				require.NoError(t, err)
				return string(read), path, done
			}
			return env[argText], "", done
		}
		text, first, firstDone := set(calls.Call{ArgFile: "a.arg"})
		require.Equal(t, "\x93gpumux 1\nfirst", text)
		_, again, againDone := set(calls.Call{ArgFile: "a.arg"})
		require.Equal(t, first, again, "so that its processes are used again")
		firstDone()
		time.Sleep(time.Hour)
		text, _, secondDone := set(calls.Call{ArgFile: "b.arg"})
		require.Equal(t, "\x93gpumux 1\nsecond", text)
		require.FileExists(t, first, "a call uses it")
		againDone()
		secondDone()
		time.Sleep(argKept)
		text, _, _ = set(calls.Call{ArgFile: "c.json"})
		require.Equal(t, `{"large"`, text[:8], "without the space around it")
		require.FileExists(t, first)
		time.Sleep(time.Second)
		large := []byte(`"` + strings.Repeat("y", gpumux.MaxArg) + `"`)
		text, inline, _ := set(calls.Call{Arg: large})
		require.Equal(t, string(large), text)
		require.NoFileExists(t, first)
		text, again, _ = set(calls.Call{ArgFile: "a.arg"})
		require.Equal(t, []string{"\x93gpumux 1\nfirst", first}, []string{text, again})
		text, path, _ := set(calls.Call{ArgFile: "d.json"})
		require.Equal(t, []string{"3", ""}, []string{text, path})
		text, path, _ = set(calls.Call{Arg: []byte("4")})
		require.Equal(t, []string{"4", ""}, []string{text, path})
		require.NoError(t, a.remove())
		require.NoFileExists(t, inline)
	})
}
