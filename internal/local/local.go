// Package local runs maps on this machine without a server of their own: it starts one,
// and a worker.
//
// It owns the folder that keeps the state, the lock on it, the files in it that other
// hosts need, the server and the worker in this process, the command that starts workers
// elsewhere, and going on after an interrupt. It never decides how a map runs, never
// prints, and never deletes a folder that its caller named. Everything stops with
// Session.Close, but for workers of others.
package local

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

type Options struct {
	// Server starts the embedded Temporal, such as that of package devserver.
	Server func(ctx context.Context, o ServerOptions) (Server, error)
	// ServerOptions are passed on to Server. Data is the folder of the whole state of what
	// Open starts; default: a temporary one. A map has a folder of its own. Token is not for
	// the caller to choose.
	ServerOptions
	// Public lets everybody on this machine in. Default: this process, and who has the file.
	Public bool
	// Host is this host's name for those who get Session.File. Default: nobody does.
	Host string
	// NoWorker leaves the task to workers of other hosts. Workers is the shell command that
	// starts some with Session.WorkerFile and stays with them; Output gets what it prints.
	NoWorker bool
	Workers  func(file string) string
	Output   io.Writer
	// Store is the URL of the store. Default: a folder in Data.
	Store string
	// Task or Modules are run by a worker. Default: there is none.
	Task    *Task
	Modules *config.Task
	// Pools are the worker's. Inventory has the devices of this machine; it is closed with
	// the session, or when none begins. Default: those of Devices and Pools without names.
	Pools     []config.Pool
	Inventory *gpu.Inventory
	// StopTimeout is how long running chunks may go on at the end. Default 1 s.
	StopTimeout time.Duration
	// Version is the worker's own. Default "dev".
	Version string
	// Command is how the map is started again, for those who list what was interrupted.
	Command []string
	// Out is the file that will have the results of the map, or empty.
	Out string
	// Say gets warnings that do not end the run. Default: nobody reads them.
	Say func(text string)
}

type ServerOptions struct {
	// Data is the folder of the database.
	Data string
	// Port and UIPort are numbers, or 0 for a free one.
	Port, UIPort int
	// Bind is the IPv4 address at which others reach the frontend; empty: nobody does.
	Bind string
	// Headless goes without the Web UI.
	Headless bool
	// Brief is for one command: the server has neither schedules nor batches. Close leaves
	// it to die with this process, which is a second faster than a stop and loses nothing.
	Brief bool
	// Token is required of callers; empty lets everybody on this machine in.
	Token string
	// Log may be nil.
	Log *zap.Logger
}

// Server is a running Temporal.
type Server interface {
	// Address is host:port of the frontend.
	Address() string
	// UI is the URL of the Web UI, with ?key= where it asks for one, or empty.
	UI() string
	// Token is what it asks for, Authority the certificate of who has signed its own; empty
	// where there are none.
	Token() string
	Authority() []byte
	// Stop closes everything; it may be called again.
	Stop() error
}

// MistakeError lists what is wrong with a request, in the words of the command line.
type MistakeError struct{ Problems []string }

// Error has a line for each problem.
func (e *MistakeError) Error() string { return strings.Join(e.Problems, "\n  ") }

func mistake(format string, args ...any) error {
	return &MistakeError{[]string{fmt.Sprintf(format, args...)}}
}

// UnavailableError says that something which a run needs could not be reached or started.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }

func (e *UnavailableError) Unwrap() error { return e.Err }

func unavailable(format string, args ...any) error {
	return &UnavailableError{fmt.Errorf(format, args...)}
}

// Place sets Inventory and Pools, as Pools makes them. It leaves the driver alone where
// only the CPU is asked for.
func (o *Options) Place(ctx context.Context, names []string, defaults config.Pool) (noGPU string, err error) {
	if !o.NoWorker {
		if o.Inventory, err = gpu.Open(ctx, gpu.Options{NoNVML: onlyCPU(names, defaults)}); err != nil {
			return "", unavailable("list this machine's devices: %w", err)
		}
	}
	if o.Pools, noGPU, err = Pools(o.Inventory, names, defaults); err != nil {
		o.closeInventory()
	}
	return noGPU, err
}

func onlyCPU(names []string, defaults config.Pool) bool {
	others := slices.ContainsFunc(names, func(name string) bool { return !OnCPU(name) })
	return slices.Equal(defaults.Devices, gpu.Selection{"cpu"}) || len(defaults.Devices) == 0 && len(names) > 0 && !others
}

// OnCPU reports whether a pool is one of the CPU by its name: cpu, or cpu- and more.
func OnCPU(pool string) bool { return pool == "cpu" || strings.HasPrefix(pool, "cpu-") }

// Pools makes a pool per name: those called cpu or cpu-… on the CPU, others on the
// devices of defaults, else on all GPUs, or on the CPU where noGPU says why. A GPU that
// is there but cannot be used is an error. Without names there is one pool, gpu or cpu.
func Pools(inventory *gpu.Inventory, names []string, defaults config.Pool) (pools []config.Pool, noGPU string, err error) {
	if inventory != nil && len(defaults.Devices) == 0 && !onlyCPU(names, defaults) {
		if why := inventory.Unusable(); why != "" {
			return nil, "", unavailable("%s; devices: cpu runs it on the CPU", why)
		}
		if _, err := inventory.Select(gpu.Selection{"all"}); err != nil {
			noGPU = cmp.Or(inventory.Reason(), err.Error())
		}
	}
	if len(names) == 0 {
		names = []string{"gpu"}
		if noGPU != "" {
			names = []string{"cpu"}
		}
	}
	for _, name := range names {
		pool := defaults
		pool.Name = name
		if len(defaults.Devices) == 0 {
			pool.Devices = gpu.Selection{"all"}
		}
		if OnCPU(name) || noGPU != "" {
			pool.Devices = gpu.Selection{"cpu"}
			pool.Slots = cmp.Or(defaults.Slots, config.CoreSlots)
			if noGPU == "" && !onlyCPU(names, defaults) {
				pool.Sharing, pool.GPUsPerSlot = "", 0 // they are meant for GPUs
			}
		}
		pools = append(pools, pool)
	}
	return pools, noGPU, nil
}
