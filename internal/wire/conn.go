// Package wire is the protocol between a worker and a task process; see docs/wire.md.
//
// It owns the messages, their frames and the board. It never decodes an item, starts a
// process or judges a fault. A Conn stops at its first error.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// keepBytes is the largest write buffer that is kept for the next message.
const keepBytes = 2 << 20

// Conn is the worker's end of the wire. One goroutine may Read while any number Send.
//
// A message that was read belongs to the caller: its values are slices of a frame that
// nothing else uses. Send keeps nothing of its message.
type Conn struct {
	stream io.ReadWriteCloser

	// Only the reading goroutine uses these.
	reader  *bufio.Reader
	greeted bool

	writing sync.Mutex // guards what follows
	buffer  []byte
	// backlog are frames that the other side did not read yet, and sent bytes of the first
	// one it did. While there are any, a goroutine sends them, the first one now.
	backlog [][]byte
	sent    int
}

// New is the worker's end of a stream to a task process.
func New(stream io.ReadWriteCloser) *Conn {
	return &Conn{stream: stream, reader: bufio.NewReaderSize(stream, 64<<10)}
}

// Close closes the stream, which ends a Read in progress.
func (c *Conn) Close() error { return c.stream.Close() }

// Read waits for the next message. It returns io.EOF at a clean end, and *ProtocolError
// for bytes that are no message. After an error there is nothing more to read.
func (c *Conn) Read() (Message, error) {
	frame, err := c.frame()
	if err != nil {
		return nil, err
	}
	line := slices.Index(frame, '\n')
	if line < 0 {
		return nil, broken("a frame of %d bytes has no header line: %.60q", len(frame), frame)
	}
	var head struct {
		Type    string
		Version any
	}
	if err := decode(frame[:line], &head); err != nil {
		return nil, err
	}
	if hello := head.Type == "hello"; hello == c.greeted {
		if hello {
			return nil, broken("a second hello")
		}
		return nil, broken("the first message is %q; it must be a hello", head.Type)
	}
	if !c.greeted && head.Version != float64(Version) {
		return nil, broken("version %d here, %v on the other side; build the worker and the task process from the same release of gpumux",
			Version, head.Version)
	}
	c.greeted = true
	parse := parsers[head.Type]
	if parse == nil {
		return nil, broken("a task process cannot say %q; it says %s", head.Type, strings.Join(slices.Sorted(maps.Keys(parsers)), ", "))
	}
	m, err := parse(frame[:line], frame[line+1:])
	if err != nil {
		return nil, err // never half a message
	}
	return m, nil
}

func (c *Conn) frame() ([]byte, error) {
	var prefix [4]byte
	if n, err := io.ReadFull(c.reader, prefix[:]); err != nil {
		if n > 0 {
			return nil, &ProtocolError{Problem: "the stream ended inside a frame's length", Err: err}
		}
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(prefix[:]))
	if size > MaxFrame {
		return nil, broken("a frame claims %d bytes; at most %d are allowed", size, MaxFrame)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(c.reader, frame); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, &ProtocolError{Problem: "a frame was cut short", Err: err}
	}
	return frame, nil
}

// Send sends one message whole, or refuses it before anything is sent. It does not wait:
// what the other side has no room for follows when it reads. Errors of the stream are for
// Read to find.
func (c *Conn) Send(m Message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	frame, err := c.encode(m)
	if err != nil {
		return err
	}
	if len(c.backlog) == 0 {
		if c.sent = c.try(frame); c.sent == len(frame) {
			return nil
		}
		go c.follow()
	}
	c.backlog, c.buffer = append(c.backlog, frame), nil
	return nil
}

// Unread is how many messages the other side has no room for.
func (c *Conn) Unread() int {
	c.writing.Lock()
	defer c.writing.Unlock()
	return len(c.backlog)
}

func (c *Conn) try(frame []byte) (n int) {
	if stream, ok := c.stream.(syscall.Conn); ok {
		if raw, err := stream.SyscallConn(); err == nil {
			_ = raw.Write(func(fd uintptr) bool { n, _ = syscall.Write(int(fd), frame); return true })
		}
	}
	return max(0, n)
}

func (c *Conn) follow() {
	for more := true; more; {
		c.writing.Lock()
		frame, sent := c.backlog[0], c.sent
		c.writing.Unlock()
		_, err := c.stream.Write(frame[sent:])
		c.writing.Lock()
		c.backlog, c.sent = slices.Delete(c.backlog, 0, 1), 0
		c.keep(frame)
		if err != nil {
			c.backlog = nil
		}
		more = len(c.backlog) > 0
		c.writing.Unlock()
	}
}

// encode makes a frame in the buffer, which is the caller's until the next message.
func (c *Conn) encode(m Message) ([]byte, error) {
	frame, bodies, err := appendHeader(append(c.buffer[:0], 0, 0, 0, 0), m)
	if err != nil {
		return nil, err
	}
	size := len(frame) - 4
	for _, b := range bodies {
		size += len(b)
	}
	if size > MaxFrame {
		return nil, broken("a %s of %d bytes is larger than the %d that a frame may hold; send fewer items at once", m.kind(), size, MaxFrame)
	}
	binary.BigEndian.PutUint32(frame, uint32(size))
	frame = slices.Grow(frame, 4+size-len(frame))
	for _, b := range bodies {
		frame = append(frame, b...)
	}
	c.keep(frame)
	return frame, nil
}

func (c *Conn) keep(frame []byte) {
	if cap(frame) <= keepBytes && cap(frame) > cap(c.buffer) {
		c.buffer = frame
	}
}

// Pair makes a socket of a kind between the worker and a process, which inherits its end.
// Neither end leaks into other processes. The caller closes process once it has started;
// otherwise the stream never ends.
func Pair(kind int) (worker *net.UnixConn, process *os.File, err error) {
	// The lock keeps a process that starts now from inheriting the ends.
	syscall.ForkLock.RLock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, kind, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("open a socket pair for a process: %w", os.NewSyscallError("socketpair", err))
	}
	process = os.NewFile(uintptr(ends[1]), "wire")
	near := os.NewFile(uintptr(ends[0]), "wire")
	defer near.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		process.Close()
		return nil, nil, fmt.Errorf("use a descriptor as the socket of a process: %w", err)
	}
	return conn.(*net.UnixConn), process, nil
}

// Pipes makes a wire of two pipes, for a process that cannot use a socket: it reads from
// the first of its files and writes to the second.
func Pipes() (worker io.ReadWriteCloser, process []*os.File, err error) {
	read, theirWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pipe for a task process: %w", err)
	}
	theirRead, write, err := os.Pipe()
	if err != nil {
		read.Close()
		theirWrite.Close()
		return nil, nil, fmt.Errorf("open a pipe for a task process: %w", err)
	}
	return pipes{read, write}, []*os.File{theirRead, theirWrite}, nil
}

type pipes struct {
	*os.File
	write *os.File
}

func (p pipes) Write(b []byte) (int, error) { return p.write.Write(b) }

// SyscallConn belongs to the end for writing.
func (p pipes) SyscallConn() (syscall.RawConn, error) { return p.write.SyscallConn() }

func (p pipes) Close() error { return errors.Join(p.File.Close(), p.write.Close()) }
