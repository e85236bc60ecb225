package slot_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// TestSlot_FaultsOfFrameworks plays every case of diagnosis/testdata/diagnosis.json in a
// real process: a task raises exceptions with the frameworks' names, or processes and
// commands end with the frameworks' last words.
func TestSlot_FaultsOfFrameworks(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../diagnosis/testdata/diagnosis.json")
	require.NoError(t, err)
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &raw))
	const shards = 4
	for shard := range shards {
		t.Run(fmt.Sprintf("Shard%d", shard), func(t *testing.T) {
			t.Parallel()
			mode := []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh}[shard%2]
			s := newStand(t, mode)
			s.on("GPU-1")
			for i := shard; i < len(raw); i += shards {
				var c stagedCase
				require.NoError(t, json.Unmarshal(raw[i], &c))
				if c.CPU {
					continue
				}
				t.Run(c.Name, func(t *testing.T) { c.stage(t, s, i) })
			}
			s.works()
		})
	}
	t.Run("CPU", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, gpumux.ModePersistent)
		for i := range raw {
			var c stagedCase
			require.NoError(t, json.Unmarshal(raw[i], &c))
			if c.CPU {
				t.Run(c.Name, func(t *testing.T) { c.stage(t, s, i) })
			}
		}
		s.works()
	})
}

type stagedCase struct {
	Name, Class, Message, Tail, Signal string
	Exit                               *int
	Code, OOMKills                     int
	MPS, Command, CoreDumped, CPU      bool
	Kind                               gpumux.FaultKind
	Poisoned, Blameless                bool
	Requested, Total, Free, Budget     int64
}

func (c stagedCase) stage(t *testing.T, s *stand, index int) {
	switch {
	case c.OOMKills > 0:
		rig.Because(t, rig.Staged, "the kernel's counter of memory kills; TestSlot_FaultsOfHostMemory has a real one")
	case c.MPS:
		rig.Because(t, rig.Staged, "an MPS server")
	case c.CoreDumped:
		rig.Because(t, rig.Staged, "core dumps, which are off")
	}
	task, call := s.task("replay"), slot.Call{Call: calls.Call{Clean: true}, Work: work(index)}
	if c.Command {
		tail := filepath.Join(t.TempDir(), "tail")
		require.NoError(t, os.WriteFile(tail, []byte(c.Tail), 0o644))
		task = launch.Task{Name: "replay", Command: []string{"/bin/sh", "-c", `cat "$1" >&2; exit $2`, "sh", tail, fmt.Sprint(*c.Exit)}}
	}
	got, err := s.run(task, call)
	var f *gpumux.Fault
	if err != nil {
		require.Empty(t, got)
		f = fault(t, err)
		require.True(t, f.Alone)
		require.Equal(t, slot.Vacant, s.State())
	} else {
		require.Len(t, got, 1)
		f = got[0].Fault
		require.NotNil(t, f, string(got[0].Value))
	}
	ended := c.Kind.Deadly() || c.Poisoned && !c.Command // a command ends anyway
	require.Equal(t, ended, err != nil, "whether the process was ended: %v", f)
	require.Equal(t, c.Kind, f.Kind, f.Error())
	require.Equal(t, [4]int64{c.Requested, c.Total, c.Free, c.Budget}, [4]int64{f.Requested, f.Total, f.Free, f.Budget}, f.Error())
	require.Equal(t, c.Blameless, f.Blameless)
	if c.Kind != gpumux.FaultTaskError {
		require.NotEmpty(t, f.Hint)
	}
}
