package activities

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
)

// keeping keeps a file of every item, where it can.
type keeping struct {
	file   *os.File
	placed bool
}

func (k *keeping) Run(ctx context.Context, call calls.Call, work calls.Work) error {
	k.placed = call.Files
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		result := gpumux.Result{Index: item.Index, Value: json.RawMessage("1")}
		if k.placed {
			if err := work.Keep(ctx, item.Index, "a.txt", k.file); err != nil {
				return err
			}
			result.Files = []string{"a.txt"}
		}
		work.Done(calls.Done{Result: result})
	}
	return nil
}

// A file waits for a store that takes nothing, and people are told what the item waits
// for. It is stored before the result.
func TestRunChunk_KeepsFilesHoweverLongTheStoreIsAway(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(t.TempDir(), "a.txt"))
	require.NoError(t, err)
	defer file.Close()
	_, err = file.WriteString("content")
	require.NoError(t, err)
	runner := &keeping{file: file}
	l := newLab(t, runner)
	s, err := store.Open(t.Context(), "file://"+dir)
	require.NoError(t, err)
	defer s.Close()
	l.pool.Store, l.pool.Recorders = s, record.New(s)
	obstacle := filepath.Join(dir, "m") // a file where the folder of parts has to be
	require.NoError(t, os.WriteFile(obstacle, nil, 0o600))
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	reported := false
	chunk := contract.Chunk{Range: &gpumux.Range{End: 2}, Work: contract.Whole(2), Parts: "m/parts"}
	l.inWorkflow(chunk, 7*time.Second, func(m memo) {
		if strings.Contains(m.Waiting, "a file of an item waits for the store") {
			reported = true
			_ = os.Remove(obstacle)
		}
	})
	require.True(t, reported)
	folder, err := s.Folder("m/parts")
	require.NoError(t, err)
	stored, err := folder.OpenFile(t.Context(), 1, "a.txt")
	require.NoError(t, err)
	defer stored.Close()
	text, err := io.ReadAll(stored)
	require.NoError(t, err)
	require.Equal(t, "content", string(text))

	chunk.Parts = ""
	_, err = l.env.ExecuteActivity("chunk", chunk)
	require.NoError(t, err)
	require.False(t, runner.placed, "nobody could find the files of results that travel inline")
}
