package slot_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/wire"
)

// faulty is a task process that speaks the wire by hand and breaks it in the way that
// FAULTY names.
func faulty() {
	file := os.NewFile(wiretest.Descriptor, "wire")
	worker := wiretest.Peer{Stream: file}
	say := func(header, body string) { _ = worker.Say(header, body) }
	forever := func() { time.Sleep(10 * time.Minute) }
	const hello, ready = `{"type":"hello","version":1,"pid":1}`, `{"type":"ready"}`
	one := func(run, n string) { say(`{"type":"results","run":`+run+`,"n":`+n+`,"sizes":[1],"busy":[0]}`, "7") }

	how := os.Getenv("FAULTY")
	switch how {
	case "silent":
		forever()
	case "version":
		say(`{"type":"hello","version":99,"pid":1}`, "")
		forever()
	}
	say(hello, "")
	if _, err := worker.Read(); err != nil {
		os.Exit(1)
	}
	if how == "results before ready" {
		one("1", "0")
		forever()
	}
	say(ready, "")
	switch how {
	case "deaf":
		forever()
	case "exit when ready":
		os.Exit(0)
	}
	first, err := worker.Read()
	if err != nil {
		os.Exit(0)
	}
	if scribble(how, say) {
		forever()
	}
	switch how {
	case "asks and reads nothing":
		for {
			say(`{"type":"posted","board":0,"wait":true}`, "")
		}
	case "one item twice":
		one("1", "0")
		one("1", "0")
	case "fault for another item":
		say(`{"type":"fault","run":1,"n":2,"fault":{"class":"E","message":"m"}}`, "")
	case "no JSON in the value":
		say(`{"type":"results","run":1,"n":0,"sizes":[2],"busy":[0]}`, "]]")
	case "unknown message":
		say(`{"type":"gossip"}`, "")
	case "half a frame":
		file.Write([]byte{0, 0, 1, 0, '{'})
		os.Exit(0)
	case "talk while idle", "closed while idle":
		run := first.(wire.Run)
		for answered := 0; ; {
			for n := range run.Items {
				one(strconv.FormatInt(run.Run, 10), strconv.Itoa(n))
			}
			if answered += len(run.Items); answered == 3 {
				break
			}
			message, err := worker.Read()
			if err != nil {
				os.Exit(0)
			}
			run = message.(wire.Run)
		}
		if how == "talk while idle" {
			one("1", "0")
		} else {
			file.Close()
		}
	}
	forever()
}

// Wrong messages cost the process that sends them and its running item, no more.
func TestSlot_AProcessThatBreaksTheWire(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct {
		kind    gpumux.FaultKind
		op      string
		message string
		results int
		late    bool
	}{
		"silent":                 {gpumux.FaultTimeout, "start", "not ready after", 0, true},
		"version":                {gpumux.FaultCrash, "start", "wire: version 1 here, 99 on the other side", 0, false},
		"results before ready":   {gpumux.FaultCrash, "start", "out of turn", 0, false},
		"asks and reads nothing": {gpumux.FaultCrash, "run", "asks for more than it reads", 0, false},
		"exit when ready":        {gpumux.FaultCrash, "run", "exit status 0", 0, false},
		"deaf":                   {gpumux.FaultTimeout, "run", "no result after", 0, true},
		"one item twice":         {gpumux.FaultCrash, "run", "item 0 of run 1, which is not its turn", 1, false},
		"fault for another item": {gpumux.FaultCrash, "run", "a fault for item 2", 0, false},
		"no JSON in the value":   {gpumux.FaultCrash, "run", "is not JSON", 0, false},
		"unknown message":        {gpumux.FaultCrash, "run", "cannot say \"gossip\"", 0, false},
		"half a frame":           {gpumux.FaultCrash, "run", "exit status 0", 0, false},

		"board: told of more than there is": {gpumux.FaultCrash, "run", "the board cannot go from byte 0 to 9007199254740992", 0, false},
		"board: another run":                {gpumux.FaultCrash, "run", "item 0 of run 9 on the board, which is not its turn", 0, false},
		"board: no JSON":                    {gpumux.FaultCrash, "run", "is not JSON", 0, false},
		"board: one result, then garbage":   {gpumux.FaultCrash, "run", "claims a value of 200 bytes", 1, false},
		"board: cut short":                  {gpumux.FaultCrash, "run", "an empty value", 0, false},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			if want.late && want.op == "start" {
				s.limitStart()
			}
			call := slot.Call{Work: work(0, strings.Repeat("large ", 1<<20), 2)}
			if want.late && want.op == "run" {
				call.Timeout = patience
			}
			got, err := s.run(s.faulty(how), call)
			require.Len(t, got, want.results)
			f := fault(t, err)
			require.Equal(t, want.kind, f.Kind, f.Error())
			require.Equal(t, want.op, f.Op)
			require.Contains(t, f.Message, want.message)
			require.Equal(t, want.results == 0, f.Alone)
			require.Empty(t, s.left())
			require.Equal(t, slot.Vacant, s.State())
			s.works()
		})
	}
}

func (s *stand) faulty(how string) launch.Task {
	task := s.task(how)
	task.Python, task.Program = "", []string{os.Args[0]}
	task.Env["GPUMUX_TEST_PROGRAM"], task.Env["FAULTY"] = "faulty", how
	return task
}

// When a process breaks its wire between two calls, the next call notices and loses one
// item.
func TestSlot_AWireThatBreaksWhileIdle(t *testing.T) {
	for how, message := range map[string]string{
		"talk while idle": "not its turn", "closed while idle": "closed its wire and went on",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			got, err := s.run(s.faulty(how), slot.Call{Work: work(0, 1, 2)})
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.Equal(t, slot.Ready, s.State())
			got, err = s.run(s.faulty(how), slot.Call{Work: work(3, 4)})
			require.Empty(t, got)
			f := fault(t, err)
			require.Equal(t, gpumux.FaultCrash, f.Kind)
			require.Contains(t, f.Message, message)
			require.False(t, f.Alone, "the item that was due may not have begun")
			require.Empty(t, s.left())
			s.works()
		})
	}
}

// A process that was stopped between two calls looks like a slow one. The time limit of
// the next item finds it.
func TestSlot_AProcessThatStoppedWhileIdle(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	gate := s.log + ".gate"
	_, err := s.run(s.task("item"), slot.Call{Work: work(object{"i": 0, "idle": "stop", "gate": gate})})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	rig.Wait(t, func() bool { return slices.ContainsFunc(s.left(), stopped) }, time.Minute, 2*time.Millisecond)
	_, err = s.run(s.task("item"), slot.Call{Call: calls.Call{Timeout: patience}, Work: work(object{"i": 1})})
	require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)
	require.Equal(t, []string{"0"}, s.begun())
	s.works()
}

// stopped reports whether a signal has stopped a process, which is given as left
// describes it.
func stopped(process string) bool {
	file, _, _ := strings.Cut(process, " ")
	return state(filepath.Dir(file)) == "T"
}

// A launcher between the worker and the task may end before the process sends its first
// message.
func TestSlot_AProcessThatDiesBeforeItsFirstWord(t *testing.T) {
	for script, want := range map[string]struct{ exit, message string }{
		"kill -SEGV $$":                      {"signal SIGSEGV", ""},
		"echo no such thing >&2; exit 127":   {"exit status 127", "no such thing"},
		"exec 3>&-; exec sleep 600":          {"", "closed its wire and went on"},
		"sleep 600 & sleep 600 & kill -9 $$": {"signal SIGKILL", ""},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			task := s.task("start")
			task.Python, task.Program = "", []string{"/bin/sh", "-c", script}
			_, err := s.run(task, slot.Call{Work: work(0)})
			f := fault(t, err)
			require.Equal(t, gpumux.FaultCrash, f.Kind, f.Error())
			require.Equal(t, "start", f.Op)
			require.Contains(t, f.Exit, want.exit)
			require.Contains(t, f.Message+f.Tail, want.message)
			require.Empty(t, s.left())
			require.Equal(t, slot.Vacant, s.State())
			s.works()
		})
	}
}
