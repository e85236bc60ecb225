package cli

import (
	"bytes"
	"io"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// hostile is text that takes over a terminal which obeys it: a link, the window's name, colours, a cleared screen, eight-bit
// sequences, text in another order, and a line written over.
const hostile = "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07\x1b]0;owned\x07\x1b[31m\x1b[2J\u009b31m\x9b31m\u202etxt.exe\u2066\rdone\x7f\b"

// steering lists the characters of a text that steer a terminal.
func steering(text string) (found []rune) {
	for i, r := range text {
		if _, size := utf8.DecodeRuneInString(text[i:]); steers(r) || r == utf8.RuneError && size == 1 {
			found = append(found, r)
		}
	}
	return found
}

func TestVisible(t *testing.T) {
	require.NotEmpty(t, steering(hostile))
	var out bytes.Buffer
	n, err := newVisible(&out).Write([]byte("żółć\t😀\n" + hostile))
	require.NoError(t, err)
	require.Equal(t, len("żółć\t😀\n")+len(hostile), n)
	require.Equal(t, "żółć\t😀\n"+`\u001b]8;;http://evil.example\u0007click\u001b]8;;\u0007\u001b]0;owned\u0007\u001b[31m\u001b[2J\u009b31m\x9b31m`+
		`\u202etxt.exe\u2066\u000ddone\u007f\u0008`, out.String())
}

// Text comes in pieces, which end anywhere.
func TestVisible_CharactersCutInTwo(t *testing.T) {
	text := "żółć 😀 \u009b \u202e\n"
	var whole, pieces bytes.Buffer
	_, err := io.WriteString(newVisible(&whole), text)
	require.NoError(t, err)
	v := newVisible(&pieces)
	for i := range len(text) {
		n, err := v.Write([]byte(text[i : i+1]))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, whole.String(), pieces.String())
}

// Every way in which text of a task reaches a person.
func TestVisible_AllThatIsPrinted(t *testing.T) {
	fault := &gpumux.Fault{Kind: gpumux.TaskError, Task: hostile, Message: hostile, Hint: hostile, Traceback: hostile, Tail: hostile}
	results := []gpumux.Result{{Index: 1, Fault: fault}}
	summary := gpumux.Summary{Task: hostile, Items: 2, Failed: 1, Results: results, ReduceFault: fault,
		Faults: map[gpumux.Kind]int64{gpumux.Kind(hostile): 1}}
	for name, print := range map[string]func(to io.Writer, a *app){
		"report": func(to io.Writer, _ *app) {
			(&report{ID: hostile, Summary: summary, Causes: []starter.Cause{{Count: 3, Example: results[0]}}}).print(to)
		},
		"show": func(to io.Writer, _ *app) {
			printDetail(to, &starter.Detail{Listed: starter.Listed{Task: hostile}, Summary: &summary, Fault: fault, Pending: []starter.Pending{
				{Activity: hostile, Worker: hostile, Waiting: hostile, Fault: fault}}}, []starter.Cause{{Count: 3, Example: results[0]}}, hostile, time.Now())
		},
		"columns": func(to io.Writer, _ *app) { require.NoError(t, table(to, [][]string{{hostile, hostile}})) },
		"say":     func(_ io.Writer, a *app) { a.console.say("gpumux: %v", fault) },
		"status": func(_ io.Writer, a *app) {
			a.console.show("embed")
			a.console.say("%s", hostile)
			a.console.show(hostile)
		},
		"log": func(_ io.Writer, a *app) { a.log(false).Warn(hostile) },
		"output": func(_ io.Writer, a *app) {
			require.Error(t, a.printResult(gpumux.Result{Output: hostile, Fault: fault}, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			print(&out, &app{console: newConsole(&out)})
			require.NotEmpty(t, out.String())
			ours := bytes.ReplaceAll(out.Bytes(), []byte(clearLine), nil)
			require.Empty(t, steering(string(ours)), "%q", ours)
		})
	}
}
