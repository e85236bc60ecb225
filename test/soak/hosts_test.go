//go:build soak && linux

package soak

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seed is GPUMUX_SOAK, or anything.
func seed(t *testing.T) uint64 {
	t.Helper()
	n, _ := strconv.ParseUint(os.Getenv("GPUMUX_SOAK"), 10, 64)
	if n <= 1 {
		n = rand.Uint64()
	}
	t.Logf("seed %d; GPUMUX_SOAK=%d repeats the choices", n, n)
	return n
}

// Hosts whose links break in every way while a map runs on them: each item has one
// result, none runs at two places at once, and none runs again once its result is stored.
func TestHosts_LinksAndHostsThatFail(t *testing.T) {
	number := seed(t)
	chance := rand.New(rand.NewPCG(number, 1))
	n := newNetwork(t, rand.New(rand.NewPCG(number, 2)), "server", "store", "client", "one", "two", "three")
	c := newCluster(t, n)
	const items = 36_000
	server := c.serve()
	stops := map[*host]func(){}
	for _, h := range c.workers {
		stops[h] = c.work(h)
	}
	go c.look()
	began := time.Now()
	// Fewer chunks than slots: one that is handed on finds a slot, and begins while whoever
	// has lost it may still run.
	command := c.run(c.client, "map", "work", "--range", fmt.Sprintf("0:%d", items), "--pool", "cpu", "--option", "window=10", "--id", "hosts",
		"--out", "results.jsonl")
	t.Cleanup(func() { c.log(c.client, command) })
	require.Eventually(t, func() bool { return c.count() > items/20 }, 2*time.Minute, 50*time.Millisecond, "the map runs")

	seconds := func(low, high float64) time.Duration {
		return time.Duration((low + chance.Float64()*(high-low)) * float64(time.Second))
	}
	one := func() *host { return c.workers[chance.IntN(len(c.workers))] }
	far := append([]*host{c.server, c.store, c.client}, c.workers...)
	troubles := []struct {
		name string
		meet func()
	}{
		{"all links lose packets and are slow", func() {
			for _, h := range far {
				h.both(wire{loss: 0.05 + 0.15*chance.Float64(), late: 100 * time.Millisecond})
			}
			time.Sleep(seconds(15, 20))
		}},
		{"a worker is cut off", func() { one().both(wire{cut: true}); time.Sleep(seconds(12, 25)) }},
		{"a worker is cut off from the server", func() { one().both(wire{cut: true}, c.server); time.Sleep(seconds(12, 25)) }},
		{"a worker is cut off from the store", func() { one().both(wire{cut: true}, c.store); time.Sleep(seconds(12, 25)) }},
		{"a worker is not heard", func() { n.lay(one(), c.server, wire{cut: true}); time.Sleep(seconds(12, 25)) }},
		{"a worker hears nothing", func() { n.lay(c.server, one(), wire{cut: true}); time.Sleep(seconds(12, 25)) }},
		{"links flap", func() {
			for end := time.Now().Add(45 * time.Second); time.Now().Before(end); {
				h := one()
				h.both(wire{cut: true}, c.server)
				time.Sleep(seconds(0.5, 9))
				h.both(wire{}, c.server)
				time.Sleep(seconds(0.2, 3))
			}
		}},
		{"a host is lost and comes back", func() {
			h := one()
			h.plug(false)
			stops[h]()
			time.Sleep(seconds(5, 20))
			h.plug(true)
			stops[h] = c.work(h)
		}},
		{"a worker is stopped", func() {
			h := one()
			c.signal(h, syscall.SIGSTOP)
			time.Sleep(seconds(12, 25))
			c.signal(h, syscall.SIGCONT)
		}},
		{"a worker's interface is down", func() { h := one(); h.plug(false); time.Sleep(seconds(12, 25)); h.plug(true) }},
		{"the client is cut off", func() { c.client.both(wire{cut: true}); time.Sleep(seconds(20, 40)) }},
		{"the server is killed while a link flaps", func() {
			h := one()
			h.both(wire{cut: true}, c.server)
			server.kill()
			time.Sleep(seconds(0.5, 9))
			h.both(wire{})
			server = c.serve()
			time.Sleep(seconds(1, 4))
			h.both(wire{cut: true})
			time.Sleep(seconds(1, 9))
		}},
	}
	chance.Shuffle(len(troubles), func(i, j int) { troubles[i], troubles[j] = troubles[j], troubles[i] })
	met := 0
	for _, trouble := range troubles {
		select {
		case <-command.ended:
		default:
			met++
			t.Logf("%6s, %5d stored: %s", time.Since(began).Round(time.Second/10), c.count(), trouble.name)
			trouble.meet()
			for _, h := range n.hosts {
				h.both(wire{})
			}
			time.Sleep(seconds(1, 5))
		}
	}
	require.Equal(t, len(troubles), met, "the map ended before all had happened")
	all := time.Since(began)
	select {
	case <-command.ended:
	case <-time.After(10 * time.Minute):
		t.Errorf("the map does not end; %d of %d stored", c.count(), items)
		command.kill()
	}
	c.judge(items)
	require.Equal(t, 0, command.ProcessState.ExitCode(), "%s", &command.output)
	t.Logf("%d items in %s, of which %s were troubled", items, time.Since(began).Round(time.Second), all.Round(time.Second))
}

// judge looks at the results and at what the task noted.
func (c *cluster) judge(items int64) {
	t := c.t
	t.Helper()
	attempts, beside := c.attempts()
	c.mu.Lock()
	defer c.mu.Unlock()
	again, late := 0, 0
	for item, tries := range attempts {
		again += len(tries) - 1
		if slices.ContainsFunc(tries, func(a attempt) bool { return c.stopped[a.host] }) {
			beside = slices.DeleteFunc(beside, func(each int64) bool { return each == item })
			continue // it may run on while it runs elsewhere, and counts once
		}
		for i, a := range tries {
			if at, ok := c.stored[item]; ok && a.begin > at {
				late++
				t.Errorf("item %d began on %s %s after its result was stored", item, a.host, (a.begin - at).Round(time.Millisecond))
			}
			if i > 0 && tries[i-1].end > a.begin {
				t.Errorf("item %d ran twice at once: %+v", item, tries)
			}
		}
	}
	for _, item := range beside {
		t.Errorf("item %d ran twice at once: %+v", item, attempts[item])
	}
	t.Logf("%d items ran again, %d of them although they were stored, %d at two places at once", again, late, len(beside))

	results, err := os.Open(filepath.Join(c.dir, "results.jsonl"))
	require.NoError(t, err)
	defer results.Close()
	index := int64(0)
	lines := bufio.NewScanner(results)
	for ; lines.Scan(); index++ {
		require.Equal(t, fmt.Sprintf(`{"index":%d,"value":%d}`, index, 3*index), lines.Text())
	}
	require.NoError(t, lines.Err())
	require.Equal(t, items, index)
}
