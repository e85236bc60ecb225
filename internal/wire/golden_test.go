package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"

	"github.com/gpumux/gpumux"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew; a change breaks every task process in the field")

// golden is a file of testdata: one message as people read it, and the frame that carries
// it. The Python tests read them too.
type golden struct {
	// From is worker or process.
	From    string          `json:"from"`
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message"`
	// Length is the frame's first four bytes in hexadecimal, Frame the rest.
	Length string `json:"length"`
	Frame  string `json:"frame"`
}

var goldens = []struct {
	name    string
	from    string
	message Message
}{
	{"hello", "worker", Hello{Version: 1, Task: "embed", Target: "embed.py:embed", Dir: "/srv/tasks", Slot: "gpu/0",
		Device: "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", Memory: 8 << 30, Mode: gpumux.ModePersistent}},
	{"hello-cpu", "worker", Hello{Version: 1, Task: "sweep/a <b>", Target: "a:b.c", Dir: "/srv/tasks", Slot: "cpu/3",
		Device: "CPU", Mode: gpumux.ModeFresh}},
	{"hello-board", "worker", Hello{Version: 1, Task: "embed", Target: "embed.py:embed", Dir: "/srv/tasks", Slot: "cpu/0",
		Device: "CPU", Mode: gpumux.ModePersistent, Board: BoardSize}},
	{"hello-own", "worker", Hello{Version: 1, Task: "sweep/fit:fit", Target: "fit.py:fit", Dir: "/srv/tasks", OwnModule: true, Slot: "cpu/0",
		Device: "CPU", Mode: gpumux.ModePersistent}},
	{"hello-room", "worker", Hello{Version: 1, Task: "t", Target: "t.py:t", Dir: "/srv/tasks", Slot: "gpu/0", Device: "GPU-a",
		Memory: 8 << 30, Mode: gpumux.ModePersistent, Room: 7 << 30}},
	{"run", "worker", Run{Run: 7, Attempts: 1, Items: raws(`1`, `"two\n"`, `{"x": [1.5, null]}`, "[\n 1\n]", `"zażółć 😀"`)}},
	{"run-attempts", "worker", Run{Run: 8, Attempts: 3, Items: raws(`{}`)}},
	{"run-empty", "worker", Run{Run: 9, Attempts: 1, Items: raws()}},
	{"run-folder", "worker", Run{Run: 9, Attempts: 1, Items: raws(`1`), Folder: "/tmp/gpumux-files-17"}},
	{"run-kinds", "worker", Run{Run: 7, Attempts: 1, Items: raws(`1`, `1234`, `56`), Kinds: []Kind{JSON, Array, Mixed}}},
	{"next", "worker", Next{}},
	{"cancel", "worker", Cancel{Runs: []int64{3, 5}}},
	{"stop", "worker", Stop{}},
	{"process-hello", "process", ProcessHello{Version: 1, PID: 4711, Runtime: "python 3.11.7"}},
	{"ready", "process", Ready{}},
	{"ready-batch", "process", Ready{Batch: 64}},
	{"ready-concurrent", "process", Ready{Concurrent: 64}},
	{"ready-kinds", "process", Ready{Concurrent: 64, Kinds: true}},
	{"canceled", "process", Canceled{Runs: []int64{3, 5}, Board: 4096}},
	{"result", "process", Results{Run: 7, N: 4, Values: raws(`{"score":0.5}`), Busy: []float64{0.001234}}},
	{"results", "process", Results{Run: 7, N: 0, Values: raws(`1`, `"zażółć 😀"`, `null`), Busy: []float64{0.25, 0.25, 12}}},
	{"results-attempts", "process", Results{Run: 7, N: 2, Values: raws(`1`, `2`), Busy: []float64{0, 1.5}, Attempts: []int{1, 3}}},
	{"results-out", "process", Results{Run: 7, N: 2, Values: raws(`1`), Busy: []float64{0.5}, Attempts: []int{2}, Out: 4096}},
	{"results-peak", "process", Results{Run: 7, N: 2, Values: raws(`1`), Busy: []float64{0.5}, Peak: 3 << 30}},
	{"results-allocators", "process", Results{Run: 7, N: 2, Values: raws(`1`), Busy: []float64{0.5}, Peak: 3 << 30,
		Allocators: &Allocators{Live: 1 << 30, Reserved: 4 << 30}}},
	{"fault-peak", "process", Fault{Run: 7, N: 1, Busy: 0.5, Peak: 40 << 20, Raised: Raised{Class: "ValueError", Message: "no"}}},
	{"fault-out", "process", Fault{Run: 7, N: 1, Busy: 0.5, Out: 70, Raised: Raised{Class: "ValueError", Message: "no"}}},
	{"fault", "process", Fault{Run: 7, N: 3, Attempts: 2, Busy: 0.25, Raised: Raised{Class: "torch.OutOfMemoryError",
		Message: "CUDA out of memory. Tried to allocate 2.00 GiB.", Traceback: "Traceback (most recent call last):\n  File \"embed.py\", line 3, in embed\n",
		Chain: []Cause{{Class: "RuntimeError", Message: "CUDA error: <out> & of memory"}}, Code: 2}}},
	{"fault-first", "process", Fault{Run: 7, Raised: Raised{Class: "ValueError", Message: "no"}}},
	{"fault-load", "process", Fault{Raised: Raised{Class: "AttributeError", Message: "embed.py has no function embd; it has: embed"}}},
	{"results-wait", "process", Results{Run: 7, N: 2, Values: raws(`1`), Busy: []float64{0.5}, Board: 4096, Wait: true}},
	{"results-kinds", "process", Results{Run: 7, N: 0, Values: raws(`1`, `1234`), Kinds: []Kind{JSON, Bytes}, Busy: []float64{0.5, 0.5}}},
	{"results-files", "process", Results{Run: 7, N: 2, Values: raws(`1`), Busy: []float64{0.5}, Files: []string{"plot.png", "zażółć.txt"}}},
	{"posted", "process", Posted{Board: 1 << 40}},
	{"posted-allocators", "process", Posted{Board: 4096, Allocators: &Allocators{Reserved: 4 << 30}}},
	{"posted-wait", "process", Posted{Board: 1040384, Wait: true}},
	{"fault-allocators", "process", Fault{Run: 7, N: 1, Raised: Raised{Class: "ValueError", Message: "no"}, Allocators: &Allocators{}}},
	{"fault-board", "process", Fault{Run: 7, N: 1, Board: 64, Raised: Raised{Class: "ValueError", Message: "no"}}},
	{"progress-board", "process", ProgressReport{Run: 7, N: 3, Value: json.RawMessage(`0.5`), Board: 64}},
	{"progress-process", "process", ProgressReport{Value: json.RawMessage(`{"running":8}`)}},
	{"progress", "process", ProgressReport{Run: 7, N: 3, Value: json.RawMessage(`{"epoch":3}`)}},
	{"cap", "process", Cap{Framework: "torch"}},
	{"cap-error", "process", Cap{Framework: "tensorflow", Error: "AttributeError: Context"}},
}

func raws(values ...string) []json.RawMessage {
	list := make([]json.RawMessage, len(values))
	for i, v := range values {
		list[i] = json.RawMessage(v)
	}
	return list
}

func TestGolden_FramesAndMessages(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			frame := written(t, g.message)
			line, err := text.Marshal(g.message)
			require.NoError(t, err)
			if *update {
				data, err := json.MarshalIndent(golden{g.from, g.message.kind(), line, hex.EncodeToString(frame[:4]), string(frame[4:])}, "", "  ")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join("testdata", g.name+".golden"), append(data, '\n'), 0o644))
			}
			data, err := os.ReadFile(filepath.Join("testdata", g.name+".golden"))
			require.NoError(t, err)
			var want golden
			require.NoError(t, json.Unmarshal(data, &want))
			head, body, _ := strings.Cut(want.Frame, "\n")
			ours, bytes, _ := strings.Cut(string(frame[4:]), "\n")
			require.JSONEq(t, head, ours, "the order of fields and the digits of a number are free")
			require.Equal(t, body, bytes)
			require.JSONEq(t, string(want.Message), string(line))

			length, err := hex.DecodeString(want.Length)
			require.NoError(t, err)
			if g.from == "process" {
				got, err := reader(append(length, want.Frame...)).Read()
				require.NoError(t, err)
				require.Equal(t, g.message, got)
			}
		})
	}
}

func TestGolden_NoFileIsLeftOver(t *testing.T) {
	names, err := filepath.Glob("testdata/*.golden")
	require.NoError(t, err)
	require.Len(t, names, len(goldens))
}

// pipe is a stream that reads what it was given and keeps what is written.
type pipe struct {
	*bytes.Reader
	bytes.Buffer
}

func (p *pipe) Read(b []byte) (int, error) { return p.Reader.Read(b) }
func (p *pipe) WriteTo(w interface{ Write([]byte) (int, error) }) (int64, error) {
	return p.Reader.WriteTo(w)
}
func (p *pipe) Close() error { return nil }

// written are the frames of messages. Only a task process says Results.
func written(t testing.TB, messages ...Message) (all []byte) {
	c := New(&pipe{Reader: bytes.NewReader(nil)})
	for _, m := range messages {
		var body []byte
		if r, ok := m.(Results); ok {
			for _, value := range r.Values {
				r.Sizes, body = append(r.Sizes, len(value)), append(body, value...)
			}
			r.Values = nil
			m = r
		}
		frame, err := c.encode(m)
		require.NoError(t, err)
		frame = append(slices.Clone(frame), body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		all = append(all, frame...)
	}
	return all
}

// reader reads what a task process says; its hello goes before everything that is none.
func reader(frames []byte) *Conn {
	c := New(&pipe{Reader: bytes.NewReader(frames)})
	c.greeted = !bytes.HasPrefix(frames[min(4, len(frames)):], []byte(`{"type":"hello"`))
	return c
}
