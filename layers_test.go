package gpumux_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/gpumux/gpumux"

// deps are all packages that a package needs, itself included, without those of the standard library.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{if .CgoFiles}} cgo{{end}}{{end}}", pkg).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Imports go one way; this is the whole map of who may know whom.
func TestLayers_ImportsGoOneWay(t *testing.T) {
	allowed := map[string][]string{
		"":                         {},
		"/gpu":                     {},
		"/store":                   {""},
		"/codec":                   {},
		"/internal/contract":       {""},
		"/workflows":               {"", "/internal/contract"},
		"/workflows/workflowstest": {""},
		"/activities":              {"", "/internal/contract", "/store"},
		"/workers/slot/wire":       {""},
		"/workers/slot/pyruntime":  {},
		"/workers/edition":         {},
		"/workers/slot/diagnosis":  {"", "/workers/slot/wire"},
		"/workers/slot/hygiene":    {""},
		"/workers/config":          {"", "/codec", "/gpu", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire"},
		"/workers/contact":         {"", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire"},
		"/internal/logkey":         {},
		"/workers/health":          {"", "/codec", "/gpu", "/internal/logkey", "/workers/config", "/workers/pool", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire"},
		"/workers/pool":            {"", "/internal/logkey", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire"},
		"/workers/slot/process":    {""},
		"/workers/slot":            {"", "/workers/edition", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire"},
		"/workers":                 {"", "/codec", "/internal/contract", "/internal/logkey", "/gpu", "/store", "/activities", "/workflows", "/workers/config", "/workers/contact", "/workers/health", "/workers/pool", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire", "/workers/slot/pyruntime"},
		"/starter":                 {"", "/codec", "/internal/contract", "/store"},
		"/starter/bench":           {"", "/codec", "/internal/contract", "/internal/logkey", "/gpu", "/store", "/activities", "/workflows", "/workers", "/workers/config", "/workers/contact", "/workers/health", "/workers/pool", "/workers/edition", "/workers/slot", "/workers/slot/diagnosis", "/workers/slot/hygiene", "/workers/slot/process", "/workers/slot/wire", "/workers/slot/pyruntime", "/starter"},
	}
	for pkg, may := range allowed {
		t.Run("gpumux"+pkg, func(t *testing.T) {
			for _, dep := range deps(t, module+pkg) {
				dep, _, _ = strings.Cut(dep, " ")
				rest, ours := strings.CutPrefix(dep, module)
				if ours && rest != pkg {
					require.Contains(t, may, rest, "%s must not import %s", pkg, rest)
				}
			}
		})
	}
}

func TestLayers_RootNeedsTheStandardLibraryOnly(t *testing.T) {
	require.Equal(t, []string{module}, deps(t, module))
}

// A Go service that maps must not pay for what only workers need.
func TestLayers_WorkflowsAreALightImport(t *testing.T) {
	for _, dep := range deps(t, module+"/workflows") {
		require.NotContains(t, dep, " cgo", "workflows reaches cgo")
		for _, heavy := range []string{"go-nvml", "go.uber.org/zap", "gocloud.dev", "cobra", module + "/workers", module + "/gpu"} {
			require.NotContains(t, dep, heavy)
		}
	}
}
