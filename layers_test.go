package gpumux_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/gpumux/gpumux"

// deps are all packages that a package needs, itself included, without those of the
// standard library.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{if .CgoFiles}} cgo{{end}}{{end}}", pkg).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// layers is who imports whom, from the top down: each line is a package, "." the root,
// and all that it may import of this project.
const layers = `
cmd/gpumux                       cmd/gpumux/devserver internal/cli internal/local
test/devservertest               cmd/gpumux/devserver
cmd/gpumux/devserver             internal/names
cmd/gpumux-worker                internal/cli
internal/cli                     . codec gpu internal/batches internal/columns internal/contract internal/fleet internal/health internal/items internal/launch internal/local internal/names internal/objects internal/report internal/results internal/sharing internal/store internal/strict internal/text starter workers workers/config
internal/batches                 . internal/contract internal/names internal/objects internal/results internal/store internal/strict internal/text starter
internal/report                  . internal/contract internal/fleet internal/results internal/text starter
internal/local                   . codec gpu internal/contract internal/fleet internal/health internal/launch internal/results internal/store internal/text starter workers workers/config
starter                          . codec internal/contract internal/fleet internal/items internal/names internal/objects internal/results internal/store internal/text workflows
workers                          . activities gpu internal/calls internal/contract internal/fleet internal/health internal/launch internal/memory internal/names internal/notice internal/objects internal/pool internal/process internal/record internal/runtimes internal/sharing internal/slot internal/store internal/template workers/config workflows
internal/fleet                   . codec internal/contract internal/names
internal/memory                  . gpu internal/notice internal/session internal/sharing internal/slot internal/wire workers/config
internal/health                  . gpu internal/calls internal/diagnosis internal/launch internal/notice internal/pool internal/slot workers/config
internal/pool                    . internal/launch internal/slot
workers/config                   . gpu internal/contract internal/launch internal/names internal/sharing internal/strict internal/text
internal/sharing                 . gpu internal/mps internal/process
internal/test/gputest            . internal/calls internal/launch internal/mps internal/slot internal/test/rig
internal/slot                    . internal/arrays internal/calls internal/diagnosis internal/launch internal/names internal/process internal/session internal/template internal/text internal/wire
internal/template                internal/diagnosis internal/launch internal/notice internal/process internal/session internal/wire
internal/session                 . internal/diagnosis internal/launch internal/notice internal/process internal/wire
internal/diagnosis               . internal/wire
internal/launch                  . internal/process
internal/process                 .
internal/runtimes                clients/python
clients/python
internal/notice
activities                       . internal/calls internal/columns internal/contract internal/items internal/names internal/objects internal/record internal/recovery internal/results internal/store internal/text
internal/recovery                .
internal/record                  . internal/store
workflows                        . internal/contract internal/names internal/text
workflows/workflowstest          . internal/contract internal/names internal/text
internal/test/storetest          . internal/contract internal/results internal/store
internal/columns                 . internal/arrays internal/names internal/results internal/text
internal/store                   . internal/contract internal/items internal/names internal/objects internal/results internal/text
internal/items                   . internal/contract internal/names internal/objects internal/results internal/text
internal/objects                 internal/names
internal/results                 . internal/arrays internal/text
internal/test/codectest
internal/test/rig
internal/test/s3test
internal/test/wiretest           internal/wire
internal/contract                . internal/names internal/text
internal/calls                   .
codec
gpu                              . internal/mps
internal/mps
internal/wire                    . internal/arrays internal/names internal/text
internal/arrays                  internal/text
.                                internal/names internal/strict internal/text
internal/strict                  internal/text
internal/text
internal/names
`

// packages are those of all modules: path, library or other, and imports.
func packages(t *testing.T) (all [][]string) {
	t.Helper()
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{if and .GoFiles (ne .Name "main")}}library{{else}}other{{end}} {{join .Imports " "}}`,
		"./...", "./cmd/gpumux/...", "./test/...")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

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
	for _, words := range packages(t) {
		pkg := short(words[0])
		var ours []string
		for _, word := range words[2:] {
			if strings.HasPrefix(word, module) {
				ours = append(ours, short(word))
			}
		}
		if _, known := may[pkg]; !known && (len(ours) == 0 || strings.HasPrefix(pkg, "examples")) {
			continue // tests and examples
		}
		require.Subset(t, may[pkg], ours, "%s", pkg)
	}
}

// The public face: what a Go program may import, and what is promised. The rest is under
// internal/.
func TestLayers_ThePublicFace(t *testing.T) {
	var public []string
	for _, words := range packages(t) {
		if words[1] == "library" && !strings.Contains(words[0], "/internal/") && !strings.Contains(words[0], "gpumux/test/") {
			public = append(public, short(words[0]))
		}
	}
	require.ElementsMatch(t, []string{
		".", "activities", "clients/python", "cmd/gpumux/devserver", "codec", "gpu", "starter", "workers", "workers/config", "workflows",
		"workflows/workflowstest",
	}, public)
}

func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// What a program may import speaks of what it may import: no exported declaration of a
// public package names a type of internal/. Those of activities do: only workers use it.
func TestLayers_ThePublicFaceNamesPublicTypes(t *testing.T) {
	// What the worker's own packages ask of each other.
	known := []string{"Catalog.Find", "NewCatalog", "Worker.Describe", "Worker.RunDirect", "Starter.UseStore"}
	exports, public := map[string]string{}, map[string]bool{}
	for _, dir := range []string{".", "cmd/gpumux"} {
		list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}} {{.Name}}", "./...")
		list.Dir = dir
		out, err := list.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) < 3 {
				continue // package unsafe
			}
			exports[words[0]] = words[1]
			if strings.HasPrefix(words[0], module) && words[2] != "main" && !internalTo(words[0]) {
				public[words[0]] = true
			}
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	delete(public, module+"/activities")
	for path := range public {
		pkg, err := from.Import(path)
		require.NoError(t, err)
		for _, name := range pkg.Scope().Names() {
			if object := pkg.Scope().Lookup(name); object.Exported() {
				for _, found := range internalTypes(object) {
					if name, _, _ := strings.Cut(found, " "); !slices.Contains(known, name) {
						t.Errorf("%s: %s", path, found)
					}
				}
			}
		}
	}
}

func internalTo(path string) bool {
	return strings.HasPrefix(path, module) && strings.Contains(path, "/internal/")
}

// internalTypes lists the types of internal/ that a declaration names.
func internalTypes(object types.Object) (found []string) {
	check := func(what string, typ types.Type) {
		types.TypeString(typ, func(pkg *types.Package) string {
			if internalTo(pkg.Path()) {
				found = append(found, what+" names a type of "+pkg.Path())
			}
			return ""
		})
	}
	declared, isType := object.(*types.TypeName)
	if !isType {
		check(object.Name(), object.Type())
		return found
	}
	check(object.Name(), types.Unalias(declared.Type()))
	if fields, ok := declared.Type().Underlying().(*types.Struct); ok {
		for field := range fields.Fields() {
			if field.Exported() {
				check(object.Name()+"."+field.Name(), field.Type())
			}
		}
	} else {
		check(object.Name(), declared.Type().Underlying())
	}
	for method := range types.NewMethodSet(types.NewPointer(declared.Type())).Methods() {
		if method.Obj().Exported() {
			check(object.Name()+"."+method.Obj().Name(), method.Type())
		}
	}
	return found
}

// Beside the standard library the root needs what will be its encoding/json/v2.
func TestLayers_RootNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, dep := range deps(t, module) {
		require.Regexp(t, "^("+module+"(/internal/(names|strict|text))?|github.com/go-json-experiment/json.*)$", dep)
	}
}

// A release is one version, the changelog's: the modules require it of each other.
func TestLayers_ModulesRequireTheRelease(t *testing.T) {
	changelog, err := os.ReadFile("CHANGELOG.md")
	require.NoError(t, err)
	release := regexp.MustCompile(`(?m)^## (\d\S*)`).FindSubmatch(changelog)
	require.NotNil(t, release)
	for file, required := range map[string]int{"cmd/gpumux/go.mod": 1, "test/go.mod": 2, "go.work": 2} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := regexp.MustCompile(`github\.com/gpumux/gpumux\S* v(\S+)`).FindAllSubmatch(text, -1)
		require.Len(t, found, required, file)
		for _, each := range found {
			require.Equal(t, string(release[1]), string(each[1]), file)
		}
	}
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

// A file is what one reading takes in.
func TestLayers_FilesAreShort(t *testing.T) {
	files, err := exec.Command("git", "ls-files", "*.go").Output()
	require.NoError(t, err)
	for file := range strings.FieldsSeq(string(files)) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.LessOrEqual(t, strings.Count(string(text), "\n"), 400, file)
	}
}
