package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxMessage bounds a message, in bytes; the whole text is in the traceback or the tail.
const maxMessage = 400

// printed are the tracebacks in the tail, the last one first, then the whole tail.
func (e Evidence) printed() []subject {
	if e.Tail == "" {
		return nil
	}
	out, rest := tracebacks(e.Tail)
	slices.Reverse(out)
	calm := rest
	if strings.Contains(calm, ".cc:") {
		calm = progressLog().ReplaceAllString(calm, "")
	}
	return append(out, subject{text: rest, calm: calm, tail: true})
}

// progressLog is a line that XLA or TensorFlow logs below the level "fatal". It may be
// about a failed allocation that a smaller one replaced, so no memory rule reads it.
var progressLog = exact(`(?m)^(?:[IWE]\d{4} |.{0,60}: [IWE] ).*\.cc:\d+\].*$`)

var raisedLine = exact(`^([A-Za-z_][\w.]*)(?:: (.*))?$`)

// tracebacks reads the exceptions that Python printed, in the order of the text. The rest
// is the text without those whose words do not count.
func tracebacks(tail string) (out []subject, rest string) {
	if !strings.Contains(tail, "Traceback ") {
		return nil, tail
	}
	lines := strings.Split(tail, "\n")
	var kept []string
	from := 0 // the first line that is not yet kept or dropped
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "Traceback (most recent call last)") {
			continue
		}
		begin := i
		for i++; i < len(lines) && (lines[i] == "" || lines[i][0] == ' '); i++ { // its frames
		}
		if i == len(lines) {
			break
		}
		m := raisedLine().FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		s := subject{class: m[1], text: m[2], mute: !speaks(m[1])}
		if s.mute {
			kept, from = append(kept, lines[from:begin]...), i+1
		}
		for i+1 < len(lines) && lines[i+1] != "" && !strings.HasPrefix(lines[i+1], "Traceback ") {
			i++
			s.text += "\n" + lines[i]
		}
		out = append(out, s)
	}
	return out, strings.Join(append(kept, lines[from:]...), "\n")
}

// deathLines are the lines in which a runtime says why it ends, the most telling first.
var deathLines = patterns(
	`(?m)^Fatal Python error: .*$`,                                     // CPython, faulthandler
	`(?m)^terminate called after throwing an instance of .*(?:\n.*)?$`, // the C++ library
	`(?m)^.*: [F] .*\.cc:\d+\] .*$|^F\d{4} .*\.cc:\d+\] .*$`,           // absl and glog
	`(?m)^.*(?:GGML_ASSERT\(|: Assertion .* failed|Check failed: ).*$`, // assert, ggml, XLA
	`(?m)^(?:panic|fatal error): .*$|^thread '.*' panicked at .*$`,     // Go, Rust
	`(?m)^ERROR: .*$|^Error in .*(?:\n.*)?$|^Error: .*$`,               // Julia, R
)

// pythonFrame is the innermost frame that faulthandler prints.
var pythonFrame = exact(`File "([^"]+)", line (\d+) in (\S+)`)

// lastMessage finds the process's words about its end, and its last exception's class.
func lastMessage(tail string) (message, class string) {
	for i, pattern := range deathLines {
		at := pattern().FindAllStringIndex(tail, -1)
		if at == nil {
			continue
		}
		span := at[len(at)-1]
		message = oneLine(strings.Join(strings.Fields(tail[span[0]:span[1]]), " "))
		if m := pythonFrame().FindStringSubmatch(tail[span[0]:]); i == 0 && m != nil {
			message += fmt.Sprintf(" in %s (%s:%s)", m[3], m[1], m[2])
		}
		return message, ""
	}
	if raised, _ := tracebacks(tail); len(raised) > 0 {
		last := raised[len(raised)-1]
		return cmp.Or(oneLine(last.text), last.class), last.class
	}
	return "", ""
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return oneLine(text[strings.LastIndexByte(text, '\n')+1:])
}

func oneLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text = strings.TrimSpace(text); len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return ": " + oneLine(text)
}

// exitText is how the process ended, such as "signal SIGSEGV (core dumped)".
func exitText(e Evidence) string {
	switch sig, shell := deadlySignal(e); {
	case !e.Exited:
		return ""
	case shell:
		return fmt.Sprintf("exit status %d, a child's %s", e.ExitCode, signalName(sig))
	case sig == 0:
		return "exit status " + strconv.Itoa(e.ExitCode)
	case e.CoreDumped:
		return "signal " + signalName(sig) + " (core dumped)"
	default:
		return "signal " + signalName(sig)
	}
}

// terminated is the exit status of the Python runtime after SIGTERM; see docs/wire.md.
const terminated = 143

// deadlySignal is the signal that ended the process, or that a shell reports as 128 plus
// it.
func deadlySignal(e Evidence) (sig syscall.Signal, shell bool) {
	if e.Signal != 0 {
		return e.Signal, false
	}
	if e.ExitCode == terminated && !e.Command {
		return syscall.SIGTERM, false
	}
	switch sig := syscall.Signal(e.ExitCode - 128); sig {
	case syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM:
		return sig, true
	}
	return 0, false
}

func signalName(sig syscall.Signal) string {
	return cmp.Or(unix.SignalName(sig), strconv.Itoa(int(sig)))
}
