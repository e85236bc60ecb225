package slot

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	answers           *bufio.Reader
	asked             int
}

// newLine makes the worker's ends and those of the warden, its descriptors 3, 4 and 5.
func newLine() (ours *line, theirs []*os.File, err error) {
	var made []*os.File
	defer func() {
		if err != nil {
			for _, file := range made {
				file.Close()
			}
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
	ours = &line{deadline: deadline, out: made[2], in: made[3], answers: bufio.NewReader(made[3])}
	theirs = []*os.File{os.NewFile(uintptr(copied), deadline.Name()), made[1], made[4]}
	return ours, theirs, ours.write(0)
}

func (l *line) close() {
	for _, file := range []*os.File{l.deadline, l.out, l.in} {
		file.Close()
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
	if err := l.write(at); err != nil || !wake {
		return err
	}
	return l.say(".")
}

func (l *line) write(at int64) error {
	if _, err := l.deadline.WriteAt(fmt.Appendf(nil, "%-20d\n", at), 0); err != nil {
		return fmt.Errorf("set the deadline of task processes: %w", err)
	}
	return nil
}

// wardenLimit bounds how long the warden is awaited.
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
	l.in.SetReadDeadline(time.Now().Add(wardenLimit))
	for {
		answer, err := l.answers.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the warden, which ends the task processes of a stopped worker, does not answer: %w", err)
		}
		if strings.TrimSpace(answer) == ask {
			return nil
		}
	}
}

func (l *line) say(text string) error {
	l.out.SetWriteDeadline(time.Now().Add(wardenLimit))
	if _, err := l.out.WriteString(text + "\n"); err != nil {
		return fmt.Errorf("tell the warden, which ends the task processes of a stopped worker: %w; start the worker again", err)
	}
	return nil
}
