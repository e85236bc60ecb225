package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/app"
)

func TestMistake_SaysWhatWasMeant(t *testing.T) {
	for given, want := range map[string]string{
		"map f --loca":        "did you mean --local?",
		"map f --max-falures": "did you mean --max-failures?",
		"map f --timeout 10":  "--timeout 10 has no unit; write 10s",
		"map f --timeout=ten": `--timeout "ten" is no time; write 90s, 5m or 2h`,
	} {
		got := run(t, "", strings.Fields(given)...)
		require.Equal(t, app.ExitUsage, got.code, given)
		require.Contains(t, got.stderr, want, given)
	}
	require.NotContains(t, run(t, "", "map", "f", "--quux").stderr, "did you mean")
}
