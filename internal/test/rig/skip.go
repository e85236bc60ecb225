// Package rig holds what tests of all packages stand on.
//
// It owns the one way to leave a test out, whose reasons have names and can be made
// failures, and the one way to wait for a condition. It never decides whether a test can
// run, and never ends a condition that hangs.
package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Strict is the environment variable that makes every skip a failure: 1, or the reasons
// and names of tests with commas between that may still be skipped.
const Strict = "GPUMUX_TEST_STRICT"

// Reason is why a test cannot run; it holds no comma and no colon.
type Reason string

// Reasons to skip: the machine lacks something, or the run was not asked for it.
const (
	Minutes   Reason = "takes minutes"              // make soak has them
	Exclusive Reason = "needs a machine of its own" // make kernel-check sets it up
	StandIn   Reason = "not in the rehearsal"
	Staged    Reason = "cannot be staged"
	NVIDIA    Reason = "no libraries of NVIDIA"
	Cluster   Reason = "no cluster"
	GPU       Reason = "no NVIDIA GPU"
	MIG       Reason = "no MIG instance"
	SMI       Reason = "nothing of nvidia-smi to compare with"
	Unlisted  Reason = "the driver lists no process of ours"
	Small     Reason = "the device is too small"
	Framework Reason = "no framework in Python"
	NumPy     Reason = "no NumPy in Python"
	Compiler  Reason = "no C compiler"
	R         Reason = "no R with its packages"
	Tool      Reason = "no such program"
	History   Reason = "no history of git"
	Root      Reason = "needs root"
	Mount     Reason = "nothing may be mounted"
	Cgroups   Reason = "no cgroup may be used"
	Linux     Reason = "needs Linux"
	Kernel    Reason = "this kernel does otherwise"
)

// Because leaves a test out, or fails it where Strict says so, with reason and details.
func Because(t testing.TB, reason Reason, details ...any) {
	t.Helper()
	text := "skip: " + string(reason)
	if detail := strings.TrimSpace(fmt.Sprint(details...)); detail != "" {
		text += ": " + detail
	}
	if !allowed(os.Getenv(Strict), reason, t.Name()) {
		t.Fatalf("%s; %s does not allow it", text, Strict)
	}
	t.Skip(text)
}

// allowed reports whether a test may be skipped; a name stands for its subtests too.
func allowed(strict string, reason Reason, name string) bool {
	if strict == "" {
		return true
	}
	for each := range strings.SplitSeq(strict, ",") {
		each = strings.TrimSpace(each)
		if each == string(reason) || each == name || strings.HasPrefix(name, each+"/") {
			return true
		}
	}
	return false
}

// WithoutR leaves a test out where R lacks what gpumux needs, or more packages.
func WithoutR(t testing.TB, more ...string) {
	t.Helper()
	code := ""
	for _, name := range append(more, "jsonlite", "codetools") {
		code += "library(" + name + ");"
	}
	if out, err := exec.Command("Rscript", "-e", code).CombinedOutput(); err != nil {
		Because(t, R, err, string(out))
	}
}

// Likewise leaves a test out that Because left out in its own process, which said so.
func Likewise(t testing.TB, output []byte) {
	t.Helper()
	t.Skip(string(output))
}
