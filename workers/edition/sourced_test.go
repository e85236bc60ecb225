package edition

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEdition_OfRCountsWhatItSources(t *testing.T) {
	dir := t.TempDir()
	text := "source('near.R')\nif (TRUE) sys.source(\n file = \"deep/more.R\", globalenv())\n# source('never.R')\n"
	write(t, filepath.Join(dir, "fit.R"), text)
	for _, name := range []string{"near.R", "deep/more.R", "never.R", "other.R"} {
		write(t, filepath.Join(dir, name), "1\n")
	}
	code := Code{Dir: dir, Target: "fit.R:fit"}
	before := code.Edition()
	require.Len(t, before, 6)
	require.NotEqual(t, before, Code{Dir: dir, Target: "fit.R:other"}.Edition())
	for name, counts := range map[string]bool{"fit.R": true, "near.R": true, "deep/more.R": true, "never.R": false, "other.R": false} {
		changed := map[bool]string{true: "source('near.R')\nsource('deep/more.R')\n", false: "2\n"}[name == "fit.R"]
		write(t, filepath.Join(dir, name), changed)
		require.Equal(t, counts, code.Edition() != before, name)
		before = code.Edition()
	}
}
