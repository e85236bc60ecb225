package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same sum comes of all four ways, and only a slot with a shard of its own holds no
// more than that.
func TestLong_OriginsPmap(t *testing.T) {
	e := newExample(t, "pmap")
	out, code := e.sh(e.dir, ".venv/bin/python examples/pmap/compare.py")
	require.Zero(t, code, out)
	spaces := regexp.MustCompile(` +`)
	for way, want := range map[string]string{
		"serial": "1 697953.1 8.00MiB 8.00MiB 4B 8.00MiB 8.00MiB", "replicated": "1 697953.0 8.00MiB 8.00MiB 4B 2.00MiB 32.00MiB",
		"sharded": "1 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 8.00MiB", "slots": "[1-4] 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 2.00MiB",
	} {
		// A slot that has ended its shard before another has begun gets the next one, too.
		require.Regexp(t, "(?m)^"+way+" "+want+"$", spaces.ReplaceAllString(out, " "))
	}

	// It tells when the numbers are wrong.
	e.change("examples/pmap/pmap.py", "row**2", "row**3")
	out, code = e.sh(e.dir, ".venv/bin/python examples/pmap/compare.py serial")
	require.Equal(t, 1, code)
	require.Contains(t, out, "WRONG")
}

// An operation that the first backend refuses runs on the next one with the same numbers,
// and two products run where they were put.
func TestLong_OriginsBackends(t *testing.T) {
	e := newExample(t, "backends")
	e.env = append(e.env, goEnvironment(t)...)
	e.build("go build -o bin/backends ./examples/backends")
	e.work("examples/backends/gpumux.yaml")
	compare := "set -o pipefail; bin/backends | .venv/bin/python examples/backends/compare.py"
	out, code := e.sh(e.dir, compare)
	require.Zero(t, code, out)
	for _, want := range []string{
		`both +(product|relu|softmax) +first/\d cpu:0 +\de-\d\d`, `both +eigenvalues +cpu/\d +first/\d, NotImplementedError +\de-\d\d`,
		`cpu +(product|relu|softmax|eigenvalues) +cpu/\d +\de-\d\d`, `hand +(left|right|sum) +first/\d cpu:0 +\de-\d\d`,
		`hand +sum after On +first/\d cpu:1 +\de-\d\d`, `2 arrays moved between slots; .*`,
	} {
		require.Regexp(t, `(?m)^`+want+`$`, out)
	}
	ran := regexp.MustCompile(`(left|right) +(first/\d)`).FindAllStringSubmatch(out, -1)
	require.NotEqual(t, ran[0][2], ran[1][2])

	// It tells when the numbers are wrong.
	e.change("examples/backends/first.py", "jax.nn.relu", "jax.nn.gelu")
	out, code = e.sh(e.dir, compare)
	require.Equal(t, 1, code)
	require.Regexp(t, `both +relu .* WRONG`, out)
}

// A process is replaced before it passes its budget; the losses are those of a plain run.
func TestLong_OriginsCleanup(t *testing.T) {
	e := newExample(t, "cleanup")
	e.change("examples/cleanup/gpumux.yaml", ":9465", ":"+freePort(t))
	e.work("examples/cleanup/gpumux.yaml")
	compare := ".venv/bin/python examples/cleanup/compare.py"
	out, code := e.sh(e.dir, compare)
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^early +\S+s +[1-9]\d* +0 +\d+MiB +16 of 16$`, out)
	require.Regexp(t, `(?m)^long +\S+s +0 +2 +\d+MiB +0 of 1$`, out)

	// It tells when the numbers are wrong.
	e.change("examples/cleanup/compare.py", "SEEDS = 16", "SEEDS = 1")
	e.change("examples/cleanup/train.py", "default_rng(seed)", "default_rng()")
	out, code = e.sh(e.dir, compare)
	require.Equal(t, 1, code)
	require.Regexp(t, `early .* 0 of 1  WRONG`, out)
}

// change puts one text in the place of another, in a file of the copy.
func (e *example) change(file, before, after string) {
	e.t.Helper()
	text := e.file(file)
	require.Contains(e.t, text, before)
	e.write(file, strings.Replace(text, before, after, 1))
}
