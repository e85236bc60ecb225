package diagnosis

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxMessage bounds a message, in bytes; the whole text is in the traceback or the tail.
const maxMessage = 400

// printed are the exceptions whose tracebacks stand in the tail, the last one first, and then the tail as a whole.
func (e Evidence) printed() []subject {
	if e.Tail == "" {
		return nil
	}
	out := tracebacks(e.Tail)
	slices.Reverse(out)
	text := ominous(e.Tail)
	return append(out, subject{text: text, calm: progressLog.ReplaceAllString(text, ""), tail: true})
}

// omens are words of which each rule's text needs one, in small letters.
var omens = []string{
	"memory", "error", "fail", "alloc", "assert", "illegal", "misaligned", "launch", "context", "address", "counter", "stack",
	"mps", "device", "bus", "oom", "exhausted", "killed", "unexpectedly", "terminated", "sigkill", "resource", "kernel",
	"toolchain", "driver", "initialized", "lost", "cuda", "cudnn",
}

// ominous keeps the lines that some rule may be about. It makes a failing item that prints a lot cheap to diagnose.
func ominous(text string) string {
	var b strings.Builder
	small := strings.Split(strings.ToLower(text), "\n")
	for i, line := range strings.Split(text, "\n") {
		if slices.ContainsFunc(omens, func(omen string) bool { return strings.Contains(small[i], omen) }) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// progressLog is a line that XLA or TensorFlow logs below the level "fatal". It may tell of an allocation that failed and was
// then made smaller, so no memory rule reads it.
var progressLog = regexp.MustCompile(`(?m)^(?:[IWE]\d{4} |.{0,60}: [IWE] ).*\.cc:\d+\].*$`)

// raisedLine is the line that ends a Python traceback.
var raisedLine = regexp.MustCompile(`^([A-Za-z_][\w.]*)(?:: (.*))?$`)

// tracebacks reads the exceptions that Python printed, in the order of the text.
func tracebacks(tail string) []subject {
	var out []subject
	lines := strings.Split(tail, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "Traceback (most recent call last)") {
			continue
		}
		for i++; i < len(lines) && (lines[i] == "" || lines[i][0] == ' '); i++ {
		}
		if i == len(lines) {
			break
		}
		m := raisedLine.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		s := subject{class: m[1], text: m[2]}
		for i+1 < len(lines) && lines[i+1] != "" && !strings.HasPrefix(lines[i+1], "Traceback ") {
			i++
			s.text += "\n" + lines[i]
		}
		out = append(out, s)
	}
	return out
}

// epitaphs are the lines in which a runtime says why it ends, the most telling first.
var epitaphs = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^Fatal Python error: .*$`),                                     // CPython, faulthandler
	regexp.MustCompile(`(?m)^terminate called after throwing an instance of .*(?:\n.*)?$`), // the C++ library
	regexp.MustCompile(`(?m)^.*: [F] .*\.cc:\d+\] .*$|^F\d{4} .*\.cc:\d+\] .*$`),           // absl and glog
	regexp.MustCompile(`(?m)^.*(?:GGML_ASSERT\(|: Assertion .* failed|Check failed: ).*$`), // assert, ggml, XLA
	regexp.MustCompile(`(?m)^(?:panic|fatal error): .*$|^thread '.*' panicked at .*$`),     // Go, Rust
	regexp.MustCompile(`(?m)^ERROR: .*$|^Error in .*(?:\n.*)?$|^Error: .*$`),               // Julia, R
}

// pythonFrame is the innermost frame that faulthandler prints.
var pythonFrame = regexp.MustCompile(`File "([^"]+)", line (\d+) in (\S+)`)

// lastWords is what the dead process said of its own end, in one line, and the class of its last exception if it raised one.
func lastWords(tail string) (words, class string) {
	for i, epitaph := range epitaphs {
		at := epitaph.FindAllStringIndex(tail, -1)
		if at == nil {
			continue
		}
		span := at[len(at)-1]
		words = oneLine(strings.Join(strings.Fields(tail[span[0]:span[1]]), " "))
		if m := pythonFrame.FindStringSubmatch(tail[span[0]:]); i == 0 && m != nil {
			words += fmt.Sprintf(" in %s (%s:%s)", m[3], m[1], m[2])
		}
		return words, ""
	}
	if raised := tracebacks(tail); len(raised) > 0 {
		last := raised[len(raised)-1]
		return cmp.Or(oneLine(last.text), last.class), last.class
	}
	return "", ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return oneLine(lines[len(lines)-1])
}

// oneLine is the first line with something in it, cut when it is long.
func oneLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text = strings.TrimSpace(text); len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// after joins what is known on top, if anything.
func after(words string) string {
	if words == "" {
		return ""
	}
	return ": " + oneLine(words)
}

// exitText is how the process ended, such as "exit status 3" or "signal SIGSEGV (core dumped)".
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

// deadlySignal is the signal that ended the process, or with shell the one that a shell between reports as 128 and its number.
func deadlySignal(e Evidence) (sig syscall.Signal, shell bool) {
	if e.Signal != 0 {
		return e.Signal, false
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
