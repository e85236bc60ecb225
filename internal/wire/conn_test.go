package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func frame(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

func TestConn_Read_SaysWhatWasWrong(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no header line", `{"type":"ready"}`, "no header line"},
		{"empty", "", "no header line"},
		{"header not JSON", "{nope\n", "not the JSON it should be"},
		{"header not an object", "[1]\n", "not the JSON it should be"},
		{"field of the wrong kind", `{"type":"ready","batch":"many"}` + "\n", "batch"},
		{"unknown type", `{"type":"dance"}` + "\n", `a task process cannot say "dance"`},
		{"type of the other side", `{"type":"run","run":1}` + "\n", `a task process cannot say "run"`},
		{"sizes beyond the body", `{"type":"results","run":1,"sizes":[2,5],"busy":[0,0]}` + "\n" + "12345", "sizes[1] reaches beyond"},
		{"sizes short of the body", `{"type":"results","run":1,"sizes":[2],"busy":[0]}` + "\n" + "12345", "3 bytes more"},
		{"negative size", `{"type":"results","run":1,"sizes":[-1,6],"busy":[0,0]}` + "\n" + "12345", "sizes[0] is -1"},
		{"empty value", `{"type":"results","run":1,"sizes":[0],"busy":[0]}` + "\n", "at least one byte"},
		{"no values", `{"type":"results","run":1}` + "\n", "no values"},
		{"busy of another length", `{"type":"results","run":1,"sizes":[1],"busy":[]}` + "\n1", "0 entries in busy"},
		{"busy below zero", `{"type":"results","run":1,"sizes":[1],"busy":[-1]}` + "\n1", "busy[0] is -1"},
		{"attempts of another length", `{"type":"results","run":1,"sizes":[1],"busy":[0],"attempts":[1,1]}` + "\n1", "2 entries in attempts"},
		{"run zero", `{"type":"results","run":0,"sizes":[1],"busy":[0]}` + "\n1", "runs count from 1"},
		{"position below zero", `{"type":"progress","run":1,"n":-1,"value":1}` + "\n", "positions from 0"},
		{"fault without fault", `{"type":"fault"}` + "\n", "what was raised"},
		{"progress without value", `{"type":"progress","run":1}` + "\n", "no value"},
		{"body where none belongs", `{"type":"ready"}` + "\nx", "must have none"},
		{"batch below zero", `{"type":"ready","batch":-1}` + "\n", "batch is -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := reader(frame(c.text))
			m, err := conn.Read()
			var broke *ProtocolError
			require.ErrorAs(t, err, &broke)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, m, "what is wrong is no message")
		})
	}
}

func TestConn_Read_Ends(t *testing.T) {
	_, err := reader(nil).Read()
	require.Equal(t, io.EOF, err)

	whole := frame(`{"type":"ready"}` + "\n")
	for cut := 1; cut < len(whole); cut++ {
		_, err := reader(whole[:cut]).Read()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut after %d bytes", cut)
	}
}

func TestConn_Read_HelloComesFirstAndOnce(t *testing.T) {
	conn := New(&pipe{Reader: bytes.NewReader(written(t, Ready{}))})
	_, err := conn.Read()
	require.ErrorContains(t, err, `the first message is "ready"`)

	conn = New(&pipe{Reader: bytes.NewReader(written(t, ProcessHello{Version: 1}, ProcessHello{Version: 1}))})
	_, err = conn.Read()
	require.NoError(t, err)
	_, err = conn.Read()
	require.ErrorContains(t, err, "a second hello")
}

func TestConn_Read_RefusesAnotherVersion(t *testing.T) {
	conn := New(&pipe{Reader: bytes.NewReader(written(t, ProcessHello{Version: 2, PID: 1}))})
	_, err := conn.Read()
	require.ErrorContains(t, err, "version 1 here, 2 on the other side")
	require.ErrorContains(t, err, "the same release of gpumux")
}

func TestConn_Read_RefusesAFrameThatIsTooLarge(t *testing.T) {
	_, err := reader(binary.BigEndian.AppendUint32(nil, MaxFrame+1)).Read()
	require.ErrorContains(t, err, fmt.Sprintf("claims %d bytes; at most %d", MaxFrame+1, MaxFrame))
}

func TestConn_Read_ValuesBelongToTheCaller(t *testing.T) {
	one := Results{Run: 1, N: 0, Values: raws(`"first"`), Busy: []float64{0}}
	two := Results{Run: 1, N: 1, Values: raws(`"other"`, `"third"`), Busy: []float64{0, 1}, Attempts: []int{1, 2}}
	conn := reader(written(t, one, two))
	first, err := conn.Read()
	require.NoError(t, err)
	second, err := conn.Read()
	require.NoError(t, err)
	require.Equal(t, one, first)
	require.Equal(t, two, second)
	values := second.(Results).Values
	_ = append(values[0], "overwritten"...)
	require.Equal(t, `"third"`, string(values[1]), "a value has no room beyond its end")
}

func TestConn_Send_RefusesBeforeSending(t *testing.T) {
	p := &pipe{Reader: bytes.NewReader(nil)}
	conn := New(p)
	big := json.RawMessage(strings.Repeat("1", 1<<20))
	many := make([]json.RawMessage, MaxFrame>>20)
	for i := range many {
		many[i] = big
	}
	require.ErrorContains(t, conn.Send(Run{Run: 1, Items: many}), "send fewer items at once")
	require.ErrorContains(t, conn.Send(Run{Run: 1, Items: raws("1", "")}), "item 1 is empty")
	require.ErrorContains(t, conn.Send(Run{Run: 1, Items: raws("1", "2"), Kinds: []Kind{Array}}), "2 items but 1 entries in kinds")
	require.ErrorContains(t, conn.Send(Run{Run: 1, Items: raws("1"), Kinds: []Kind{Bytes}}), "kinds[0] is 1")
	require.Zero(t, p.Buffer.Len())
}

// Whoever sends frames also takes the answers, so it must never wait for a process that
// does not read.
func TestConn_Send_ToAProcessThatDoesNotRead(t *testing.T) {
	pipe, files, err := Pipes()
	require.NoError(t, err)
	t.Cleanup(func() { pipe.Close(); files[0].Close(); files[1].Close() })
	socket, process := ends(t)
	for name, each := range map[string]struct {
		worker  *Conn
		process io.Reader
	}{"socket": {socket, process}, "pipes": {New(pipe), files[0]}} {
		t.Run(name, func(t *testing.T) {
			hears := func(m Message) {
				want := written(t, m)
				got := make([]byte, len(want))
				_, err := io.ReadFull(each.process, got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
			}
			require.NoError(t, each.worker.Send(Hello{Version: 1}))
			require.Zero(t, each.worker.Unread(), "there was room for it")
			items := raws(strings.Repeat("1", 700<<10), "2")
			for n := range 7 {
				require.NoError(t, each.worker.Send(Run{Run: int64(n + 1), Items: items}))
				require.Equal(t, n+1, each.worker.Unread())
			}
			hears(Hello{Version: 1})
			for n := range 7 {
				hears(Run{Run: int64(n + 1), Items: items})
			}
			require.NoError(t, each.worker.Send(Stop{}))
			hears(Stop{})
		})
	}
}

func TestConn_Send_NothingWaitsForOneWhoIsGone(t *testing.T) {
	worker, process := ends(t)
	require.NoError(t, worker.Send(Run{Run: 1, Items: raws(strings.Repeat("1", 1<<20))}))
	require.NoError(t, process.Close())
	require.Eventually(t, func() bool { return worker.Unread() == 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, worker.Send(Stop{}))
}

func TestConn_Send_FromManyGoroutines(t *testing.T) {
	worker, process := ends(t)
	var writers sync.WaitGroup
	for g := range int64(8) {
		writers.Go(func() {
			for n := range int64(100) {
				if err := worker.Send(Cancel{Runs: []int64{g, n}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := map[int64]int64{}
	for range 800 {
		var size [4]byte
		_, err := io.ReadFull(process, size[:])
		require.NoError(t, err)
		header := make([]byte, binary.BigEndian.Uint32(size[:]))
		_, err = io.ReadFull(process, header)
		require.NoError(t, err)
		var m Cancel
		require.NoError(t, json.Unmarshal(header, &m))
		require.Equal(t, next[m.Runs[0]], m.Runs[1])
		next[m.Runs[0]]++
	}
	writers.Wait()
	require.Len(t, next, 8)
}

// ends are both ends of a real socket pair, in this process.
func ends(t testing.TB) (worker *Conn, process net.Conn) {
	near, file, err := Pair(syscall.SOCK_STREAM)
	require.NoError(t, err)
	far, err := net.FileConn(file)
	file.Close()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return New(near), far
}

func FuzzRead(f *testing.F) {
	for _, g := range goldens {
		f.Add(written(f, g.message))
	}
	f.Add(written(f, ProcessHello{Version: 1}, Ready{}))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		conn := reader(data)
		for {
			m, err := conn.Read()
			if err != nil {
				return
			}
			// What was understood can be said again and means the same.
			again, err := reader(written(t, m)).Read()
			if err != nil {
				t.Fatalf("wrote %#v, cannot read it: %v", m, err)
			}
			if again.kind() != m.kind() {
				t.Fatalf("wrote %#v, read %#v", m, again)
			}
		}
	})
}
