package python_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/wire"
)

func TestLoad_EveryKindOfFunction(t *testing.T) {
	for _, c := range []struct {
		target string
		batch  int
		want   string
	}{
		{"kinds.py:plain", 0, "2 4 6 8"},
		{"kinds:plain", 0, "2 4 6 8"},
		{"kinds.py:awaited", 0, "2 4 6 8"},
		{"kinds.py:one_loop", 0, "1 2 3 4"},
		{"kinds.py:model", 0, "2 4 6 8"},
		{"kinds.py:model.method", 0, "2 4 6 8"},
		{"kinds.py:Model.static", 0, "2 4 6 8"},
		{"kinds.py:model.together", 3, "2 4 6 8"},
		{"kinds.py:partial", 0, "2 4 6 8"},
		{"kinds.py:Batching", 3, "[2,3] [4,3] [6,3] [8,1]"},
		{"kinds.py:through_sibling", 0, "2 4 6 8"},
		{"kinds.py:batch", 3, "[2,3] [4,3] [6,3] [8,1]"},
		{"kinds.py:batch_bare", 64, "[2,4] [4,4] [6,4] [8,4]"},
		{"kinds.py:batch_awaited", 2, "[2,2] [4,2] [6,2] [8,2]"},
		{"deep/inner.py:where", 0, `["inner.py","inner","near",1] ["inner.py","inner","near",2] ["inner.py","inner","near",3] ["inner.py","inner","near",4]`},
		{"deep.inner:where", 0, ""},
	} {
		t.Run(c.target, func(t *testing.T) {
			p := greet(t, "tasks", c.target)
			if c.want == "" {
				// As a module of a package it does not find what lies beside its file: Python's own
				// rule.
				require.Equal(t, "ModuleNotFoundError", p.Next().(wire.Fault).Raised.Class)
				return
			}
			ready := p.Next().(wire.Ready)
			require.Equal(t, c.batch, ready.Batch)
			require.Equal(t, c.want, strings.Join(p.Values("1", "2", "3", "4"), " "))
			require.Equal(t, c.want, strings.Join(p.Values("1", "2", "3", "4"), " "), "a second run")
			require.NoError(t, p.Conn.Send(wire.Stop{}))
			require.Zero(t, p.Exit())
		})
	}
}

// Bytecode makes a start short. A user's folder gets none where the environment says so.
func TestLoad_WritesBytecodeOfItsOwnModulesAlone(t *testing.T) {
	start(t, "faults.py:raises")
	require.DirExists(t, filepath.Join(filepath.Dir(runtime), "__pycache__"))
	require.NoDirExists(t, filepath.Join("testdata", "tasks", "__pycache__"))
}

// A class is made an object once, with the process.
func TestLoad_AClass(t *testing.T) {
	p := greet(t, "tasks", "kinds.py:Counting")
	require.IsType(t, wire.Ready{}, p.Next())
	require.Equal(t, "[2,1,1] [4,1,2]", strings.Join(p.Values("1", "2"), " "))
	require.Equal(t, "[6,1,3]", strings.Join(p.Values("3"), " "))
}

// A class is made with the fields of the map's arg.
func TestLoad_AClassWithArguments(t *testing.T) {
	for _, c := range []struct{ class, arg, want string }{
		{"Scale", `{"factor":2}`, "6"}, {"Scale", `{"factor":2,"offset":1}`, "7"}, {"Fields", `{"a":1}`, `{"a":1}`},
		{"Fields", "", "{}"}, {"Fields", "[1]", "{}"}, {"Module", `{"a":1}`, `{"a":1}`},
		{"Scale", `{"factr":2}`, "gets the fields of --arg, which has factr: missing a required argument: 'factor'"},
		{"Scale", `{"factor":2,"x":1}`, "got an unexpected keyword argument 'x'"},
		{"Scale", "", "TypeError: Scale(factor, *, offset=0) gets the fields of --arg, which has none"},
	} {
		t.Run(c.class+c.arg, func(t *testing.T) {
			if c.arg != "" {
				t.Setenv("GPUMUX_ARG", c.arg)
			}
			p := greet(t, "tasks", "classes.py:"+c.class)
			if fault, failed := p.Next().(wire.Fault); failed {
				require.Contains(t, fault.Raised.Class+": "+fault.Raised.Message, c.want)
				return
			}
			require.Equal(t, c.want, p.Values("3")[0])
		})
	}
}

// A class is left, or closed, when its process ends in order.
func TestLoad_AClassThatEnds(t *testing.T) {
	for _, c := range []struct{ target, printed string }{
		{"Closes", "closing\n"}, {"Within", "entered\nleft (None, None, None)\nclosing\n"}, {"Awaits", "closing\n"},
	} {
		for item, says := range map[string]string{"stops": "", "exits": "", "raises": "ValueError: no way out\n"} {
			for _, status := range []int{0, 143} {
				t.Run(fmt.Sprint(c.target, item, status), func(t *testing.T) {
					p := start(t, "classes.py:"+c.target)
					require.Equal(t, quote(item), p.Values(quote(item))[0])
					if status == 0 {
						require.NoError(t, p.Conn.Send(wire.Stop{}))
					} else {
						require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
					}
					if says != "" {
						fault := p.Next().(wire.Fault)
						require.Equal(t, []any{int64(0), "ValueError", "no way out"}, []any{fault.Run, fault.Raised.Class, fault.Raised.Message})
					}
					require.Equal(t, status, p.Exit())
					require.Regexp(t, "^"+regexp.QuoteMeta(c.printed)+"(?s:.*)"+says+"$", p.Printed())
				})
			}
		}
	}
	p := start(t, "classes.py:resident.scale")
	require.Equal(t, "4", p.Values("2")[0])
	require.NoError(t, p.Conn.Send(wire.Stop{}))
	require.Zero(t, p.Exit())
	require.Equal(t, "closing\n", p.Printed())
}

func TestLoad_TasksThatCannotBeLoaded(t *testing.T) {
	for _, c := range []struct{ dir, target, class, message string }{
		{"tasks", "kinds.py:bath", "AttributeError", "kinds.py has no function bath; it has: plain, awaited, one_loop, Model, Counting, Batching, Refusing, model, through_sibling, batch, batch_bare, batch_awaited"},
		{"tasks", "kinds.py:model.nothing", "AttributeError", "kinds.py has no function model.nothing; it has: plain,"},
		{"tasks", "kinds.py:Refusing", "OSError", "no weights here"},
		{"tasks", "kinds.py:not_a_function", "TypeError", "not_a_function in kinds.py is a int, which cannot be called"},
		{"tasks", "kind.py:plain", "FileNotFoundError", "has: classes.py, faults.py, kinds.py, life.py, managed.py, noise.py, sibling.py"},
		{"tasks", "kind:plain", "ModuleNotFoundError", "there is no module kind; "},
		{"tasks", "kinds.py", "ValueError", "'kinds.py' names no task; write file.py:function or module:function"},
		{"tasks", "", "ValueError", "names no task"},
		{"broken", "json.py:run", "ImportError", "json.py has the name of the module json, which is loaded already; rename the file"},
		{"broken", "lacking.py:x", "ModuleNotFoundError", "No module named 'no_such_dependency'"},
		{"broken", "lacking:x", "ModuleNotFoundError", "No module named 'no_such_dependency'"},
		{"broken", "leaving.py:x", "SystemExit", "sys.exit('no device')"},
		{"broken", "syntax.py:embed", "SyntaxError", "syntax.py, line 1"},
	} {
		t.Run(c.target, func(t *testing.T) {
			p := greet(t, c.dir, c.target)
			m := p.Next().(wire.Fault)
			require.Zero(t, m.Run)
			require.Equal(t, c.class, m.Raised.Class)
			require.Contains(t, m.Raised.Message, c.message)
			require.Equal(t, 65, p.Exit())
		})
	}
}

func TestLoad_ImportFailureShowsTheTasksFrames(t *testing.T) {
	for _, target := range []string{"raising.py:x", "raising:x"} {
		p := greet(t, "broken", target)
		raised := p.Next().(wire.Fault).Raised
		require.Equal(t, "weights are missing", raised.Message)
		require.Empty(t, raised.Chain)
		lines := strings.Split(raised.Traceback, "\n")
		require.Equal(t, "Traceback (most recent call last):", lines[0])
		require.Contains(t, lines[1], filepath.Join("broken", "raising.py"), "%s: the first frame is the task's own", target)
		require.Contains(t, raised.Traceback, "in build")
		require.NotContains(t, raised.Traceback, "importlib")
		require.NotContains(t, raised.Traceback, filepath.Dir(runtime))
	}
}
