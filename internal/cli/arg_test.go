package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

func TestArg_IsReadOnceFromAPipe(t *testing.T) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	_, err = to.WriteString(`{"a": 3}`)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	var f taskFlags
	require.NoError(t, f.parseArg(fmt.Sprintf("/dev/fd/%d", from.Fd())))
	require.Equal(t, `{"a":3}`, string(f.input.Arg))
}

func TestArg_WithArraysIsNamedByItsContent(t *testing.T) {
	var f taskFlags
	path := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(path, []byte(names.ArraysHead+"and so on"), 0o600))
	require.NoError(t, f.parseArg(path))
	require.Equal(t, path, f.argFile)
	require.Regexp(t, regexp.MustCompile(`^sources/[0-9a-f]{64}\.arg$`), f.input.ArgFile)
	require.NoError(t, os.WriteFile(path, []byte("\x93and so on"), 0o600))
	require.ErrorContains(t, new(taskFlags).parseArg(path), "invalid character")
}

// What a retry does not say stays as the map has it.
func TestRetry_OverrulesWhatIsGiven(t *testing.T) {
	for _, c := range []struct {
		words    []string
		attempts int
		retryOn  []string
	}{
		{nil, 3, []string{"OSError"}}, {[]string{"--attempts", "5"}, 5, []string{"OSError"}}, {[]string{"--retry-on", "KeyError"}, 3, []string{"KeyError"}},
	} {
		f, command := &mapFlags{}, &cobra.Command{}
		f.registerAttempts(command.Flags())
		require.NoError(t, command.ParseFlags(c.words))
		ladder, mode, timeout := []string{"gpu"}, gpumux.ModeFresh, gpumux.Duration(time.Second)
		attempts, retryOn := 3, []string{"OSError"}
		f.overrule(command, &ladder, &mode, &timeout, &attempts, &retryOn)
		require.Equal(t, []any{c.attempts, c.retryOn, gpumux.ModeFresh}, []any{attempts, retryOn, mode})
	}
}
