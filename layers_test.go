package gpumux_test

import (
	"cmp"
	"os"
	"os/exec"
	"slices"
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

// layers is who imports whom, from the top down: each line is a package, "." the root, and all that it may import of this project.
const layers = `
deploy/devserver/cmd/gpumux    deploy/devserver/embedded starter/cli
deploy/devserver/cmd/manual    starter/cli
deploy/devserver/embedded      deploy/devserver starter/local
deploy/devserver/devservertest deploy/devserver
deploy/devserver               internal/names
cmd/gpumux                     starter/cli
starter/cli                    . gpu internal/contract internal/items internal/names internal/text starter starter/bench starter/cli/app starter/cli/files starter/cli/host starter/cli/screen starter/cli/show starter/fleet starter/local starter/prune workers/config workers/slot/launch
starter/cli/host               . codec gpu starter starter/bench starter/cli/app starter/cli/screen starter/cli/show starter/cli/top starter/fleet starter/local store workers workers/config workers/health workers/slot/runtimes
starter/cli/app                codec internal/text starter starter/cli/screen starter/fleet starter/local store
starter/cli/files              . internal/items internal/names internal/objects internal/results internal/text starter starter/local store/columns
starter/cli/top                . starter starter/cli/screen starter/fleet
starter/cli/show               . internal/results internal/text starter starter/cli/screen starter/fleet
starter/cli/screen             .
starter/local                  . codec gpu internal/contract internal/items internal/results starter starter/fleet store workers workers/config workers/edition workers/slot/launch
starter/bench                  . gpu starter store workers workers/config workers/sharing
starter                        . codec internal/contract internal/names internal/results internal/text starter/fleet starter/prune store
starter/prune                  internal/names internal/objects store
starter/fleet                  . codec internal/contract internal/names internal/payload
workers                        . activities activities/record codec gpu internal/calls internal/contract internal/logkey internal/names internal/payload store workers/autoslots workers/config workers/contact workers/health workers/memory workers/metrics workers/pool workers/sharing workers/slot workers/slot/launch workers/slot/process workers/slot/runtimes workers/slot/template workflows
workers/autoslots              . gpu internal/logkey workers/config workers/memory workers/pool
workers/memory                 . gpu internal/logkey workers/config workers/sharing workers/slot workers/slot/process workers/slot/session
workers/metrics                . gpu workers/health workers/pool workers/slot
workers/health                 . gpu internal/calls internal/logkey workers/config workers/pool workers/slot workers/slot/diagnosis workers/slot/launch workers/slot/process
workers/pool                   . internal/calls internal/logkey workers/slot workers/slot/launch
workers/contact                internal/calls internal/contract
workers/config                 . codec gpu internal/contract internal/names workers/sharing workers/slot/launch workers/slot/process
workers/sharing                . gpu gpu/mps internal/logkey workers/slot/process
workers/slot/slottest          internal/calls workers/slot workers/slot/launch
workers/slot                   . internal/arrays internal/calls internal/logkey internal/names internal/text workers/slot/account workers/slot/diagnosis workers/slot/launch workers/slot/process workers/slot/session workers/slot/template workers/slot/wire
workers/slot/account           . workers/slot/session
workers/slot/template          . internal/logkey workers/slot/diagnosis workers/slot/launch workers/slot/process workers/slot/session
workers/slot/session           . internal/logkey workers/slot/diagnosis workers/slot/launch workers/slot/process workers/slot/wire
workers/slot/diagnosis         . workers/slot/wire
workers/slot/launch            . workers/edition workers/slot/process
workers/slot/process           . internal/logkey
workers/slot/wire              . internal/arrays internal/names
workers/slot/runtimes
workers/edition
activities                     . activities/record internal/calls internal/contract internal/items internal/names internal/objects internal/payload internal/text store store/columns
activities/record              . store
workflows                      . internal/contract internal/names internal/payload internal/text workflows/sizing
workflows/sizing               . internal/contract
workflows/workflowstest        . internal/contract internal/names internal/text
internal/payload               . internal/contract
internal/logkey
store/columns                  . internal/arrays internal/items internal/results internal/text
store                          . internal/contract internal/items internal/names internal/objects internal/results
internal/items                 . internal/calls internal/contract internal/names internal/objects internal/results
internal/objects               internal/names
internal/results               . internal/arrays
internal/arrays                internal/text
internal/skip
gpu/gputest                    gpu/mps internal/wait
internal/wait
store/s3test
internal/contract              . internal/names internal/text
internal/calls                 .
codec
gpu                            . gpu/mps
gpu/mps
.                              internal/names internal/text
internal/text
internal/names
`

// Imports go down only, and this is the whole map.
func TestLayers_ImportsGoDown(t *testing.T) {
	may, below := map[string][]string{}, map[string]bool{}
	lines := strings.Split(strings.TrimSpace(layers), "\n")
	for _, line := range slices.Backward(lines) {
		words := strings.Fields(line)
		for _, word := range words[1:] {
			require.True(t, below[word], "%s stands above %s", words[0], word)
		}
		below[words[0]] = true
		may[words[0]] = words[1:]
	}
	for _, dir := range []string{".", "deploy/devserver"} {
		list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
		list.Dir = dir
		out, err := list.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			pkg := short(words[0])
			var own []string
			for _, word := range words[1:] {
				if strings.HasPrefix(word, module) {
					own = append(own, short(word))
				}
			}
			if _, known := may[pkg]; !known && (len(own) == 0 || strings.HasPrefix(pkg, "examples")) {
				continue // tests and examples
			}
			require.Subset(t, may[pkg], own, "%s", pkg)
		}
	}
}

func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

func TestLayers_RootNeedsTheStandardLibraryOnly(t *testing.T) {
	require.Equal(t, []string{module + "/internal/names", module + "/internal/text", module}, deps(t, module))
}

// A Go service that maps must not pay for what only workers need.
func TestLayers_WorkflowsAreALightImport(t *testing.T) {
	for _, dep := range deps(t, module+"/workflows") {
		require.NotContains(t, dep, " cgo", "workflows reaches cgo")
		for _, heavy := range []string{"go-nvml", "go.uber.org/zap", "gocloud.dev", "cobra", "arrow-go", module + "/workers", module + "/gpu"} {
			require.NotContains(t, dep, heavy)
		}
	}
	for _, dep := range deps(t, module+"/starter") {
		for _, heavy := range []string{"go-nvml", "go.uber.org/zap", "cobra", "arrow-go", module + "/workers", module + "/gpu"} {
			require.NotContains(t, dep, heavy)
		}
	}
}

// A package is what one person can hold in the head. What has to be larger says so here.
func TestLayers_RoomsAreSmall(t *testing.T) {
	larger := map[string]int{"starter/cli": 4000, "store": 6000}
	for _, dir := range []string{".", "deploy/devserver"} {
		list := exec.Command("go", "list", "-f", `{{$d := .Dir}}{{.ImportPath}}{{range .GoFiles}} {{$d}}/{{.}}{{end}}`, "./...")
		list.Dir = dir
		out, err := list.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			total := 0
			for _, file := range words[1:] {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				lines := strings.Count(string(text), "\n")
				require.LessOrEqual(t, lines, 400, file)
				total += lines
			}
			require.LessOrEqual(t, total, cmp.Or(larger[short(words[0])], 2500), "lines of %s: give a part of it a package of its own", short(words[0]))
		}
	}
}
