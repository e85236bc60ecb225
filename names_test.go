package gpumux_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unspeaking are words that say nothing of what they name: prepositions, participles and
// degrees, and those of a court for what a fault is.
var unspeaking = strings.Fields("of own most least told said given with like there mine " +
	"accuse accused acquit absolve guilty sentence testify verdict")

func TestNames_SayWhatTheyName(t *testing.T) {
	var found []string
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && path != "." && (entry.Name()[0] == '.' || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, name := range declared(file) {
			if slices.Contains(unspeaking, strings.ToLower(name.Name)) && name.Name != "With" { // loggers have With
				found = append(found, fmt.Sprintf("%s: %s", files.Position(name.Pos()), name.Name))
			}
		}
		return nil
	}))
	require.Empty(t, found, "name these by what they are")
}

// declared lists every name that the file declares.
func declared(file *ast.File) (names []*ast.Ident) {
	add := func(list ...ast.Expr) {
		for _, each := range list {
			if name, is := each.(*ast.Ident); is {
				names = append(names, name)
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Field:
			names = append(names, node.Names...)
		case *ast.ValueSpec:
			names = append(names, node.Names...)
		case *ast.FuncDecl:
			names = append(names, node.Name)
		case *ast.TypeSpec:
			names = append(names, node.Name)
		case *ast.AssignStmt:
			if node.Tok == token.DEFINE {
				add(node.Lhs...)
			}
		case *ast.RangeStmt:
			if node.Tok == token.DEFINE {
				add(node.Key, node.Value)
			}
		}
		return true
	})
	return names
}
