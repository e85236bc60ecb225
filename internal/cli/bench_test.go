package cli

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBench_MistakesAreFoundBeforeAnythingStarts(t *testing.T) {
	lonely(t)
	require.NoError(t, os.Mkdir("folder", 0o755))
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"NoClient":    {[]string{"--clients", "0"}, []string{"--clients 0 is outside 1 to 64"}},
		"ManyClients": {[]string{"--clients", "1,65"}, []string{"--clients 65"}},
		"Limit":       {[]string{"--limit", "-1s"}, []string{"--limit -1s is no time"}},
		"Workload":    {[]string{"--workloads", "heavy,heavier"}, []string{`"heavier" is unknown`, "heavy, medium, detector, light"}},
		"Sharing":     {[]string{"--sharing", "mps,time"}, []string{`--sharing "time" is unknown`, "default, mps"}},
		"Pool":        {[]string{"--pool", "tpu"}, []string{`--pool "tpu"`, "gpu, cpu"}},
		"Framework":   {[]string{"--framework", "tensorflow"}, []string{`--framework "tensorflow"`, "torch, jax, cupy, numpy"}},
		"Folder":      {[]string{"--json", "folder"}, []string{"open folder: is a directory"}},
		"NoFolder":    {[]string{"--json", "no/where.json"}, []string{"open no/where.json: no such file"}},
		"All":         {[]string{"--pool", "tpu", "--clients", "0"}, []string{"--pool", "--clients"}},
		"Argument":    {[]string{"heavy"}, []string{"unknown command"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, "", append([]string{"bench"}, c.args...)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Empty(t, got.stdout)
			for _, text := range c.says {
				require.Contains(t, got.stderr, text)
			}
		})
	}
}

func TestBench_NeedsTheEmbeddedServer(t *testing.T) {
	lonely(t)
	got := runWith(t, Options{}, "bench")
	require.Equal(t, exitUsage, got.code, got.stderr)
	require.Contains(t, got.stderr, "without the embedded server")
}
