//go:build soak && linux

package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// network is hosts of this machine, each a network namespace whose only link ends in this
// process. Packets go from link to link here, so that they can be lost, late, or go one
// way alone, whatever the kernel offers for that.
type network struct {
	t     *testing.T
	hosts []*host

	mu     sync.Mutex
	wires  map[way]wire
	chance *rand.Rand
}

// way is a direction between two hosts.
type way struct{ from, to *host }

// wire is what happens to packets. The zero wire carries them all at once.
type wire struct {
	cut  bool
	loss float64
	late time.Duration
}

// host is a network namespace with an address.
type host struct {
	net     *network
	name    string
	space   string
	address string
	link    *os.File
	in      chan packet
}

type packet struct {
	data []byte
	due  time.Time
}

// subnet is reserved for documentation, so that it is nobody's.
const subnet = "198.51.100."

// newNetwork makes hosts with these names; they are gone with the test. It skips where
// this user may not make them.
func newNetwork(t *testing.T, chance *rand.Rand, names ...string) *network {
	t.Helper()
	if os.Getuid() != 0 {
		rig.Because(t, rig.Root, "it makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		rig.Because(t, rig.Tool, "ip; on Debian: apt-get install iproute2")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		rig.Because(t, rig.Kernel, err, "; it needs CONFIG_TUN")
	}
	n := &network{t: t, wires: map[way]wire{}, chance: chance}
	for i, name := range names {
		h := &host{net: n, name: name, space: fmt.Sprintf("gpumux-%d-%s", os.Getpid(), name),
			address: fmt.Sprintf("%s%d", subnet, i+1), in: make(chan packet, 1<<16)}
		n.ip("netns", "add", h.space)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", h.space).Run() })
		require.NoError(t, h.within(func() (err error) { h.link, err = openLink(); return err }))
		n.ip("-n", h.space, "address", "add", h.address+"/24", "dev", "net0")
		n.ip("-n", h.space, "link", "set", "lo", "up")
		h.plug(true)
		n.hosts = append(n.hosts, h)
	}
	for _, h := range n.hosts {
		go h.read()
		go h.write()
		t.Cleanup(func() { _ = h.link.Close() })
	}
	return n
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(n.t, err, "ip %v: %s", args, out)
}

// openLink makes the network interface net0, whose packets are the file's reads and
// writes.
func openLink() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq("net0")
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("make a network interface: %w", err)
	}
	return os.NewFile(uintptr(fd), "net0"), nil
}

// within runs f on a thread of the host's namespace, which what f starts or opens stays
// in. The thread ends with f.
func (h *host) within(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		space, err := os.Open("/run/netns/" + h.space)
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			_ = space.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// plug has the host's network interface up or down.
func (h *host) plug(up bool) {
	h.net.t.Helper()
	h.net.ip("-n", h.space, "link", "set", "net0", map[bool]string{true: "up", false: "down"}[up])
}

// lay puts a wire between two hosts, one way.
func (n *network) lay(from, to *host, w wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wires[way{from, to}] = w
}

// both lays a wire between a host and others, both ways; no others are all.
func (h *host) both(w wire, others ...*host) {
	if len(others) == 0 {
		others = h.net.hosts
	}
	for _, other := range others {
		h.net.lay(h, other, w)
		h.net.lay(other, h, w)
	}
}

// read takes packets that leave the host to where they go.
func (h *host) read() {
	buffer := make([]byte, 1<<16)
	for {
		size, err := h.link.Read(buffer)
		if err != nil {
			return
		}
		if data := buffer[:size]; size >= 20 && data[0]>>4 == 4 {
			h.net.carry(h, append([]byte(nil), data...))
		}
	}
}

func (n *network) carry(from *host, data []byte) {
	to := binary.BigEndian.Uint32(data[16:20])
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		if binary.BigEndian.Uint32(net.ParseIP(h.address).To4()) != to {
			continue
		}
		w := n.wires[way{from, h}]
		if w.cut || w.loss > 0 && n.chance.Float64() < w.loss {
			return
		}
		select {
		case h.in <- packet{data, time.Now().Add(w.late)}:
		default: // as a router whose memory is full
		}
	}
}

// write gives the host the packets that reached it, in their order.
func (h *host) write() {
	for p := range h.in {
		time.Sleep(time.Until(p.due))
		if _, err := h.link.Write(p.data); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// listen opens a port of the host.
func (h *host) listen(port int) (l net.Listener) {
	h.net.t.Helper()
	require.NoError(h.net.t, h.within(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", h.address, port))
		return err
	}))
	h.net.t.Cleanup(func() { _ = l.Close() })
	return l
}
