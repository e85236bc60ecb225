package cli

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/devices"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/workers/health"
	"github.com/gpumux/gpumux/workers/slot/pyruntime"
)

// probing bounds a check that starts a process.
const probing = 2 * time.Minute

// checked is a finding that is good without an error.
func checked(check string, err error, fix, detail string) finding {
	if err != nil {
		return finding{Check: check, Verdict: bad, Detail: err.Error(), Fix: fix}
	}
	return finding{Check: check, Verdict: good, Detail: detail}
}

// checkPython starts the interpreter and reads its version.
func checkPython(ctx context.Context, python string) finding {
	said, fix := local.CheckPython(ctx, python)
	f := finding{Check: "python", Verdict: good, Detail: said, Fix: fix}
	if fix != "" {
		f.Verdict = bad
	}
	return f
}

// importer loads a task as a task process does.
//
//go:embed importer.py
var importer string

// checkTask imports a task in a process of its own.
func checkTask(ctx context.Context, python, task string) finding {
	f := finding{Check: "task", Verdict: bad, Fix: "correct the task; it must import without a GPU call that fails here"}
	if at := strings.LastIndex(task, ":"); at < 1 || at == len(task)-1 {
		f.Detail, f.Fix = task+" does not say which function", "write it as file.py:function or module:function"
		return f
	}
	// Tasks import the Python side of gpumux.
	library, err := os.MkdirTemp("", "gpumux-doctor-")
	if err == nil {
		defer os.RemoveAll(library)
		if library, err = pyruntime.Install(library); err == nil {
			library = filepath.Dir(filepath.Dir(library))
		}
	}
	if err != nil {
		f.Detail, f.Fix = err.Error(), "make room in the folder for temporary files (TMPDIR)"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	started := time.Now()
	command := exec.CommandContext(ctx, python, "-c", importer, task)
	command.Env = append(os.Environ(), "PYTHONPATH="+strings.Join([]string{library, os.Getenv("PYTHONPATH")}, string(os.PathListSeparator)))
	command.WaitDelay = time.Second
	out, err := command.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		f.Detail = task + ": " + screen.OneLine(lines[len(lines)-1], 200)
		if ctx.Err() != nil {
			f.Detail = fmt.Sprintf("%s: importing it took longer than %s", task, probing)
		}
		return f
	}
	return finding{Check: "task", Verdict: good, Detail: fmt.Sprintf("%s imports in %s", task, screen.Span(time.Since(started)))}
}

// checkDevices has a line per device, or says why there is no GPU.
func checkDevices(ctx context.Context, python string) []finding {
	inventory, err := gpu.Open(gpu.Options{})
	if err != nil {
		return []finding{{Check: "devices", Verdict: bad, Detail: err.Error(), Fix: "repair the driver, or use the pool cpu"}}
	}
	defer inventory.Close()
	findings := probeDevices(ctx, inventory, inventory.Devices(), python)
	if reason := inventory.Reason(); reason != "" {
		findings = append(findings, finding{Check: "gpu", Verdict: note, Detail: screen.OneLine(reason, 300)})
	}
	return findings
}

// probeDevices asks the driver about the GPUs of a list and tries each with a throw-away process, all at once.
func probeDevices(ctx context.Context, inventory *gpu.Inventory, list []gpu.Device, python string) []finding {
	list = slices.DeleteFunc(slices.Clone(list), func(d gpu.Device) bool { return d.Kind == gpu.KindCPU || !d.Usable() })
	findings := make([]finding, len(list))
	var all sync.WaitGroup
	for i, d := range list {
		all.Go(func() {
			status, err := inventory.Status(d.UUID)
			f := checked("device "+devices.Selector(d), err, "look at it with nvidia-smi; leave it out of devices until it works",
				fmt.Sprintf("%s, %s free of %s", d.Name, gpumux.Size(status.Memory.Free), gpumux.Size(status.Memory.Total)))
			if err == nil {
				probe := health.Prober{Python: python}.Try(ctx, d.UUID)
				f.Detail += "; " + probe.String()
				switch h := status.Health; {
				case h != nil && h.Reason == gpu.ReasonRecovery && h.Action.Cordon():
					f.Verdict, f.Detail = bad, fmt.Sprintf("%s, but the driver asks for: %s; no worker gives it work", f.Detail, h.Action)
					f.Fix = h.Action.HintFor(cmp.Or(d.Parent, d.UUID))
				case probe.Sick():
					f.Verdict, f.Fix = bad, probe.Hint()
				case probe.Untried != "":
					f.Verdict = note
				}
			}
			findings[i] = f
		})
	}
	all.Wait()
	return findings
}

// checkState finds out whether local maps can keep their state.
func checkState() finding {
	folder, err := local.Folder()
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		var trial *os.File
		if trial, err = os.CreateTemp(folder, ".check-*"); err == nil {
			err = errors.Join(trial.Close(), os.Remove(trial.Name()))
		}
	}
	return checked("state", err, "make the folder writable, or set XDG_STATE_HOME, or give --data", folder+" is writable")
}

// checkTemporal connects. Without an address it may be that nobody wanted a server yet.
func (a *app) checkTemporal(ctx context.Context) (*connection, finding) {
	conn, err := a.connect(ctx)
	if err == nil {
		detail := fmt.Sprintf("%s, namespace %s", conn.address, conn.namespace)
		if conn.ui != "" {
			detail += ", web UI " + conn.ui
		}
		return conn, finding{Check: "temporal", Verdict: good, Detail: detail}
	}
	f := finding{Check: "temporal", Verdict: bad, Detail: err.Error(), Fix: "start `gpumux dev`, or give --address"}
	var connect *starter.ConnectError
	if errors.As(err, &connect) {
		f.Detail, f.Fix = fmt.Sprintf("%s: %v", connect.Address, connect.Err), connect.Hint
	}
	if a.Local != nil && a.address == "" && os.Getenv("TEMPORAL_ADDRESS") == "" {
		f.Verdict = note
	}
	return nil, f
}

// checkWorkers asks all workers what they offer and tries their store.
func (a *app) checkWorkers(ctx context.Context, conn *connection) []finding {
	all, err := conn.Workers(ctx)
	if err != nil {
		return a.noWorkers(ctx, err)
	}
	var findings []finding
	var stores []string // one for each, with the host of who said it
	hosts := map[string]string{}
	answered := false
	for _, w := range all {
		f := finding{Check: "worker " + w.Identity, Verdict: good}
		if w.Offer == nil {
			f.Verdict, f.Detail = note, w.Error
			f.Fix = "if it is gone the server forgets it within minutes; else look at its log"
			findings = append(findings, f)
			continue
		}
		answered = true
		f.Detail = fmt.Sprintf("gpumux %s offers %s", w.Offer.Version, offered(w.Offer.Pools))
		findings = append(findings, f)
		if len(w.Offer.Tasks) == 0 {
			findings = append(findings, finding{Check: "tasks", Verdict: bad, Detail: w.Identity + " offers none", Fix: "name tasks in the worker's file"})
		}
		for _, pool := range w.Offer.Pools {
			if f := checkPool(ctx, conn, pool); !slices.Contains(findings, f) {
				findings = append(findings, f)
			}
		}
		if _, known := hosts[w.Offer.Store]; !known {
			hosts[w.Offer.Store], stores = w.Offer.Host, append(stores, w.Offer.Store)
		}
	}
	if tasks := tasksOf(all); len(tasks) > 0 {
		names := make([]string, len(tasks))
		for i, t := range tasks {
			names[i] = t.Name
		}
		findings = append(findings, finding{Check: "tasks", Verdict: good, Detail: screen.OneLine(strings.Join(names, ", "), 200)})
	}
	if len(stores) > 1 {
		findings = append(findings, finding{Check: "store", Verdict: bad, Detail: "the workers have different stores: " + strings.Join(stores, ", "),
			Fix: "give all workers of a server the same store"})
	}
	switch here, _ := os.Hostname(); {
	case a.storeURL != "":
		findings = append(findings, checkStore(ctx, a.storeURL))
	case !answered:
	case strings.HasPrefix(stores[0], "file:") && hosts[stores[0]] != here:
		findings = append(findings, finding{Check: "store", Verdict: note,
			Detail: fmt.Sprintf("%s is a folder of host %s; large inputs and results need --store from here", stores[0], hosts[stores[0]])})
	default:
		findings = append(findings, checkStore(ctx, stores[0]))
	}
	return findings
}

// noWorkers says why no worker can be asked.
func (a *app) noWorkers(ctx context.Context, err error) []finding {
	var none *starter.NoWorker
	if errors.As(err, &none) {
		return []finding{{Check: "workers", Verdict: bad, Detail: "nobody serves queue " + none.Queue,
			Fix: "start `gpumux worker -f gpumux.yaml` on a host with GPUs, or `gpumux dev`"}}
	}
	found := []finding{{Check: "workers", Verdict: note, Detail: err.Error()}}
	if a.storeURL != "" {
		found = append(found, checkStore(ctx, a.storeURL))
	}
	return found
}

// checkPool finds out whether a pool is served, and what keeps its slots within their budget.
func checkPool(ctx context.Context, conn *connection, pool gpumux.PoolInfo) finding {
	rungs, err := conn.Serving(ctx, []string{pool.Name})
	if err != nil {
		return finding{Check: "pool " + pool.Name, Verdict: bad, Detail: err.Error(), Fix: "check the connection to Temporal"}
	}
	if !rungs[1].Served() {
		return finding{Check: "pool " + pool.Name, Verdict: bad, Detail: "nobody polls " + rungs[1].Queue, Fix: "restart the worker and read its log"}
	}
	return servedPool(pool, rungs[1].Queue)
}

// servedPool is the finding about a pool that is served.
func servedPool(pool gpumux.PoolInfo, queue string) finding {
	f := finding{Check: "pool " + pool.Name, Verdict: good, Detail: "served on queue " + queue}
	if pool.Memory > 0 {
		f.Detail += fmt.Sprintf("; budget %s enforced by: %s", pool.Memory, strings.Join(pool.Means, ", "))
		if len(pool.Means) == 0 {
			f.Verdict, f.Fix = note, "nothing enforces the budget; see the worker's log, and docs/memory.md"
		}
	}
	return f
}

// checkStore finds out whether a store can be used.
func checkStore(ctx context.Context, url string) finding {
	return checked("store", tryStore(ctx, url), "check the URL, the credentials and the permissions; see docs/store.md", url+" can be written")
}

// tryStore writes and deletes an object.
func tryStore(ctx context.Context, url string) error {
	st, err := store.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	key := fmt.Sprintf("doctor/%d-%d", os.Getpid(), time.Now().UnixNano())
	w, err := st.Create(ctx, key)
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte("gpumux doctor\n")); err != nil {
		w.Abort()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return st.Delete(ctx, key)
}

// checkPort finds out whether `gpumux dev` could listen.
func checkPort(name, flag string, port int) finding {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		err = listener.Close()
	}
	return checked(name, err, fmt.Sprintf("something else has the port: stop it, or give `gpumux dev %s` another", flag), "free for `gpumux dev`")
}
