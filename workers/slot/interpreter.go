package slot

import (
	"os/exec"
	"strings"
	"sync"
)

// interpreters remembers which program a Python's name stands for.
var interpreters sync.Map

// interpreter follows a name such as python3 to the program itself. Version managers put a shell script in its place, which
// would take longer at every start than Python does. What cannot be followed is left as it is: starting it tells why.
func interpreter(name string) string {
	if name == "" {
		name = "python3"
	}
	if known, ok := interpreters.Load(name); ok {
		return known.(string)
	}
	out, err := exec.Command(name, "-I", "-S", "-c", "import sys; print(sys.executable)").Output()
	path := strings.TrimSpace(string(out))
	if err != nil || path == "" {
		return name
	}
	interpreters.Store(name, path)
	return path
}
