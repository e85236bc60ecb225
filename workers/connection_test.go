package workers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
)

// Keys are read, and what is wrong with them is told, before anything starts.
func TestKeys_ComeFromTheFilesFolder(t *testing.T) {
	dir := site(t)
	const file = "store: file:///tmp/none\npools: [{name: host, devices: cpu}]\ntasks: {embed: {python: \"embed.py:embed\"}}\ncodec: {keys: keys}\n"
	c, err := load(t, dir, file)
	require.NoError(t, err)
	err = c.Validate(onlyCPU(t))
	require.ErrorContains(t, err, "gpumux.yaml:4: codec.keys: read the keys: stat "+filepath.Join(dir, "keys"))

	require.NoError(t, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keys", "a.key"), []byte(strings.Repeat("0f", 32)), 0o600))
	w, err := New(c, Options{Inventory: onlyCPU(t)})
	require.NoError(t, err)
	require.Equal(t, "a", w.objects.Current())
	require.IsType(t, &codec.Keys{}, w.o.Codec.(contract.Noticing).PayloadCodec)
}

// A codec of a program's own leaves the store as it is, and the log says so.
func TestKeys_ACodecAloneDoesNotEncryptTheStore(t *testing.T) {
	c, err := load(t, site(t), "store: file:///tmp/none\npools: [{name: host, devices: cpu}]\ntasks: {embed: {python: \"embed.py:embed\"}}\n")
	require.NoError(t, err)
	core, lines := observer.New(zapcore.WarnLevel)
	w, err := New(c, Options{Inventory: onlyCPU(t), Codec: converter.NewZlibCodec(converter.ZlibCodecOptions{}), Log: Zap(zap.New(core))})
	require.NoError(t, err)
	require.Nil(t, w.objects)
	require.Len(t, lines.FilterMessageSnippet("objects in the store are not encrypted").All(), 1)

	core, lines = observer.New(zapcore.WarnLevel)
	w, err = New(c, Options{Inventory: onlyCPU(t), Log: Zap(zap.New(core))})
	require.NoError(t, err)
	require.Nil(t, w.o.Codec)
	require.Empty(t, lines.All())
}

// What an activity has left for its next attempt goes only when the server has its end.
func TestReports_OnlyWhatTheServerHasTaken(t *testing.T) {
	var r reports
	done := make(chan string, 2)
	r.after([]byte("taken"), func() { done <- "taken" })
	r.after([]byte("refused"), func() { done <- "refused" })
	r.ended([]byte("refused"), serviceerror.NewNotFound("a newer attempt"))
	r.ended([]byte("another"), nil)
	r.ended([]byte("taken"), nil)
	r.ended([]byte("refused"), nil)
	r.doing.Wait()
	require.Len(t, done, 1)
	require.Equal(t, "taken", <-done)
}
