package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/wire"
)

// A board that cannot be used costs nothing but time.
func TestBoard_ResultsComeInFramesWithoutItsMemory(t *testing.T) {
	nothing, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer nothing.Close()
	p := launch(t, nothing)
	require.IsType(t, wire.ProcessHello{}, p.Next())
	dir, err := filepath.Abs("testdata/tasks")
	require.NoError(t, err)
	require.NoError(t, p.Conn.Send(wire.Hello{Version: wire.Version, Target: "kinds.py:plain", Dir: dir, Slot: "cpu/0", Device: "CPU",
		Mode: gpumux.ModePersistent, Board: wire.BoardSize}))
	require.IsType(t, wire.Ready{}, p.Next())
	require.Equal(t, []string{"2", "4", "6"}, p.Values("1", "2", "3"))
}

func needNumPy(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		rig.Because(t, rig.NumPy, string(out))
	}
}

// What the worker writes of an array is to the byte what Python writes of it, for any
// bits.
func TestValue_ArraysReadAsPythonWritesThem(t *testing.T) {
	needNumPy(t)
	p := greet(t, "arrays", "arrays.py:both")
	require.IsType(t, wire.Ready{}, p.Next())
	for _, dtype := range strings.Fields("i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 >f8 >i2") {
		got := p.Do(1, `"`+dtype+`"`, "null")
		require.Nil(t, got[0].Fault, dtype)
		require.True(t, got[0].Raw, dtype)
		require.False(t, got[1].Raw)
		require.Equal(t, got[1].Value, "["+strings.NewReplacer("[", "", "]", "").Replace(got[0].Value)+"]", dtype)
	}
}

func TestValue_RowsOfABatch(t *testing.T) {
	needNumPy(t)
	p := greet(t, "arrays", "arrays.py:embeddings")
	require.IsType(t, wire.Ready{}, p.Next())
	require.Equal(t, []string{"[0.0,0.0]", "[0.14285715,1.0]", "[0.2857143,2.0]"}, p.Values("0", "1", "2"))
}

func TestValue_Bytes(t *testing.T) {
	needNumPy(t)
	p := greet(t, "arrays", "arrays.py:data")
	require.IsType(t, wire.Ready{}, p.Next())
	require.Equal(t, []string{`"AP8="`, `""`, `"AP8A/w=="`}, p.Values("1", "0", "2"))
}
