package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gpumux/gpumux/workers/slot/launch"
)

// rName is a name as R writes it without quotes.
var rName = regexp.MustCompile(`^(?:[\pL]|\.[\pL_.]|\.$)[\pL\pN._]*$`)

// rscript finds the R of a task.
func (c Config) rscript(at string, t Task, r *report) string {
	switch {
	case t.Venv != "":
		r.add(at+".venv", "is for Python; give the Rscript as interpreter, and packages by R_LIBS in env")
		return ""
	case t.Interpreter != "":
		return executable(at+".interpreter", t.Interpreter, c.dir(), r)
	}
	path, err := exec.LookPath("Rscript")
	if err != nil {
		r.add(at, "there is no Rscript on PATH; install R (on Debian: apt-get install r-base-core r-cran-jsonlite), or give interpreter")
		return "Rscript"
	}
	return path
}

// checkR looks at a target without running it.
func checkR(at string, task launch.Task, r *report) {
	i := strings.LastIndexByte(task.R, ':')
	if i <= 0 || !strings.HasSuffix(task.R[:i], ".R") || !rName.MatchString(task.R[i+1:]) {
		r.add(at, "%q does not say which function; write it as file.R:function", task.R)
		return
	}
	path, function := task.R[:i], task.R[i+1:]
	if !filepath.IsAbs(path) {
		path = filepath.Join(task.Dir, path)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		r.add(at, "%s: %s", path, reason(err))
	} else if !strings.Contains(string(source), function) {
		r.add(at, "%s has no function %s", path, function)
	}
}
