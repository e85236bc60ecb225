package slot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the system started, including the time that it slept. While this program is stopped, it goes on.
func Uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()

// line is what the worker tells its warden: the deadline in a file without a name, which is read when the last one passes, and
// a pipe each way for what has to be noticed at once.
type line struct {
	deadline, out, in *os.File
	asked             int
	// answers are what it answers to settle, closed when it says nothing any more; beats counts all that it says.
	answers chan string
	beats   atomic.Int64
}

// newLine makes the worker's ends and those of the warden: its standard input, its standard output and its descriptor 3.
func newLine() (ours *line, theirs []*os.File, err error) {
	var made []*os.File
	defer func() {
		if err != nil {
			closeAll(made)
		}
	}()
	fd, err := unix.MemfdCreate("gpumux-deadline", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("make a file in memory: %w", err)
	}
	deadline := os.NewFile(uintptr(fd), "gpumux-deadline")
	made = append(made, deadline)
	for range 2 {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		made = append(made, read, write)
	}
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	made = append(made, os.NewFile(uintptr(copied), deadline.Name()))
	ours = &line{deadline: deadline, out: made[2], in: made[3], answers: make(chan string, 1)}
	if err = ours.write(0); err != nil {
		return nil, nil, err
	}
	go ours.listen()
	return ours, []*os.File{made[1], made[4], made[5]}, nil
}

func (l *line) close() { closeAll([]*os.File{l.deadline, l.out, l.in}) }

// listen takes in what the warden says until the line is closed.
func (l *line) listen() {
	defer close(l.answers)
	for said := bufio.NewScanner(l.in); said.Scan(); {
		l.beats.Add(1)
		if said.Text() == "." {
			continue
		}
		select {
		case l.answers <- said.Text():
		default: // an answer that nobody waited for any more
			select {
			case <-l.answers:
			default:
			}
			l.answers <- said.Text()
		}
	}
}

// set tells the deadline; wake is for a warden that waits for none.
func (l *line) set(due time.Duration, wake bool) error {
	at := int64(0)
	if due > 0 {
		// In this order: when the program is stopped in between, the deadline comes early and not late.
		data, err := os.ReadFile("/proc/uptime")
		left := due - Uptime()
		if err != nil {
			return fmt.Errorf("set the deadline of task processes: %w", err)
		}
		up, _, _ := strings.Cut(string(data), " ")
		now, err := strconv.ParseFloat(up, 64)
		if err != nil {
			return fmt.Errorf("read /proc/uptime: %w", err)
		}
		at = max(1, int64(now*100)+int64(left/(10*time.Millisecond)))
	}
	if err := l.write(at); err != nil || !wake || l.unread() {
		return err
	}
	return l.say(".")
}

// unread says whether the warden has a line to read yet: it wakes as well by that one and looks at the deadline after it. It reads
// none while it waits for a deadline, so that a line for each call would fill the pipe up.
func (l *line) unread() bool {
	pipe, err := l.out.SyscallConn()
	if err != nil {
		return false
	}
	waiting := 0
	err = pipe.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && waiting > 0
}

func (l *line) write(at int64) error {
	if _, err := l.deadline.WriteAt(fmt.Appendf(nil, "%-20d\n", at), 0); err != nil {
		return fmt.Errorf("set the deadline of task processes: %w", err)
	}
	return nil
}

// wardenLimit bounds how long the warden is awaited that says nothing.
const wardenLimit = 5 * time.Second

// settle takes the deadline back and returns when the warden is not ending anything.
func (l *line) settle() error {
	if err := l.write(0); err != nil {
		return err
	}
	l.asked++
	ask := strconv.Itoa(l.asked)
	if err := l.say(ask); err != nil {
		return err
	}
	limit := time.NewTicker(wardenLimit)
	defer limit.Stop()
	for heard := l.beats.Load(); ; {
		select {
		case answer, ok := <-l.answers:
			if !ok {
				return errors.New("it said nothing any more")
			}
			if answer == ask {
				return nil
			}
		case <-limit.C:
			now := l.beats.Load()
			if now == heard {
				return fmt.Errorf("it did not answer for %s", wardenLimit)
			}
			heard = now // it is still ending processes
		}
	}
}

func (l *line) say(text string) error {
	l.out.SetWriteDeadline(time.Now().Add(wardenLimit))
	if _, err := l.out.WriteString(text + "\n"); err != nil {
		return fmt.Errorf("tell the warden of the deadline: %w", err)
	}
	return nil
}
