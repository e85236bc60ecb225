package gpu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

type host struct{}

var thisHost host

func (host) cpuName() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}

// memory counts the pages that nothing uses as free, which is less than could be had.
func (host) memory() (Memory, error) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return Memory{}, fmt.Errorf("sysctl hw.memsize: %w", err)
	}
	pages, err := unix.SysctlUint32("vm.page_free_count")
	if err != nil {
		return Memory{}, fmt.Errorf("sysctl vm.page_free_count: %w", err)
	}
	free := min(uint64(pages)*uint64(unix.Getpagesize()), total)
	return Memory{Total: total, Free: free, Used: total - free}, nil
}

// sign: no GPU of macOS can be used, so none is pointed to.
func (host) sign() string { return "" }
