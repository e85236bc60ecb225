package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/store"
)

// hostCommands returns the commands of the package, in the order of the help.
func hostCommands(a *app) []*cobra.Command {
	return []*cobra.Command{workerCommand(a), workersCommand(a), topCommand(a), backlogCommand(a), tasksCommand(a), codecServerCommand(a), gpusCommand(a),
		doctorCommand(a), benchCommand(a)}
}

func doctorCommand(a *app) *cobra.Command {
	var python string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up; every failed line says what to do",
		Long: `Check the set-up: Python, devices, Temporal, workers and store. Each GPU is tried with a throw-away process.
The exit code is 1 when a check failed.`,
		Example: "  gpumux doctor\n  gpumux doctor --address temporal.internal:7233 --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVar(&python, "python", "", pythonUsage)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		findings := examine(c.Context(), a, cmp.Or(python, "python3"))
		if err := context.Cause(c.Context()); err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(a.Stdout, findings); err != nil {
				return err
			}
		} else {
			printFindings(a.Stdout, findings)
		}
		if anyBad(findings) {
			return exitCode(exitFailed)
		}
		return nil
	}
	return c
}

// examine runs every check; those that build on a failed one are left out.
func examine(ctx context.Context, a *app, python string) []finding {
	findings := append([]finding{checkPython(ctx, python)}, checkDevices(ctx, python)...)
	conn, reached := checkTemporal(ctx, a)
	findings = append(findings, reached)
	if conn == nil {
		if a.storeURL != "" {
			findings = append(findings, checkStore(ctx, a.storeURL))
		}
		return findings
	}
	defer conn.close()
	return append(findings, checkWorkers(ctx, a, conn)...)
}

func gpusCommand(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "gpus",
		Short: "Show this machine's devices: memory, MIG, processes",
		Long: `Show this machine's devices: memory, MIG instances below their GPU, and who holds memory on them.
Details follow where there is something to say: a device that does not answer, MIG mode, MPS.
A pool's devices take the beginning of a UUID as well. Whether a device works, gpumux doctor tries.
docs/gpus.schema.json describes --json.`,
		Example: "  gpumux gpus\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := gpu.Open(c.Context(), gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		r := inspectDevices(inventory)
		if asJSON {
			return printJSON(a.Stdout, r)
		}
		if err := r.Print(a.Stdout); err != nil {
			return err
		}
		if r.Reason != "" {
			a.console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

// checkTemporal connects. Without an address it may be that nobody wanted a server yet.
func checkTemporal(ctx context.Context, a *app) (*connection, finding) {
	conn, err := a.connect(ctx)
	if err == nil {
		detail := fmt.Sprintf("%s, namespace %s", conn.address, conn.Namespace)
		if conn.ui != "" {
			detail += ", web UI " + conn.ui
		}
		return conn, finding{Check: "temporal", Status: checkGood, Detail: detail}
	}
	f := finding{Check: "temporal", Status: checkBad, Detail: err.Error(), Fix: "start `gpumux dev`, or give --address"}
	if away, ok := errors.AsType[*fleet.ConnectError](err); ok {
		f.Detail, f.Fix = fmt.Sprintf("%s: %v", away.Address, away.Err), a.phrase(away.Hint)
	}
	if a.Local != nil && a.address == "" && os.Getenv("TEMPORAL_ADDRESS") == "" {
		f.Status = checkNote
	}
	return nil, f
}

func checkWorkers(ctx context.Context, a *app, conn *connection) []finding {
	all, err := conn.Fleet().Workers(ctx)
	if err != nil {
		return noWorkers(ctx, a, err)
	}
	var findings []finding
	var stores []string // one for each, with the host of who said it
	hosts := map[string]string{}
	answered := false
	for _, w := range all {
		f := finding{Check: "worker " + w.Identity, Status: checkGood}
		if w.Offer == nil {
			f.Status, f.Detail = checkNote, a.phrase(w.Error)
			f.Fix = "if it is gone the server forgets it within minutes; else look at its log"
			findings = append(findings, f)
			continue
		}
		answered = true
		f.Detail = fmt.Sprintf("gpumux %s offers %s", w.Offer.Version, report.Pools(w.Offer.Pools))
		findings = append(findings, f)
		for _, pool := range w.Offer.Pools {
			if f := checkBudget(pool); !slices.Contains(findings, f) {
				findings = append(findings, f)
			}
		}
		if _, known := hosts[w.Offer.Store]; !known {
			hosts[w.Offer.Store], stores = w.Offer.Host, append(stores, w.Offer.Store)
		}
	}
	if tasks := report.TasksOf(all); len(tasks) > 0 {
		names := make([]string, len(tasks))
		for i, t := range tasks {
			names[i] = t.Name
		}
		findings = append(findings, finding{Check: "tasks", Status: checkGood, Detail: report.OneLine(strings.Join(names, ", "), 200)})
	}
	if len(stores) > 1 {
		findings = append(findings, finding{Check: "store", Status: checkBad, Detail: "the workers have different stores: " + strings.Join(stores, ", "),
			Fix: "give all workers of a server the same store"})
	}
	switch here, _ := os.Hostname(); {
	case a.storeURL != "":
		findings = append(findings, checkStore(ctx, a.storeURL))
	case !answered:
	case strings.HasPrefix(stores[0], "file:") && hosts[stores[0]] != here:
		findings = append(findings, finding{Check: "store", Status: checkNote,
			Detail: fmt.Sprintf("%s is a folder of host %s; large inputs and results need --store from here", stores[0], hosts[stores[0]])})
	default:
		findings = append(findings, checkStore(ctx, stores[0]))
	}
	return findings
}

func noWorkers(ctx context.Context, a *app, err error) []finding {
	if none, ok := errors.AsType[*fleet.NoWorkerError](err); ok {
		return []finding{{Check: "workers", Status: checkBad, Detail: "nobody serves queue " + none.Queue,
			Fix: "start `gpumux worker -f gpumux.yaml` on a host with GPUs, or `gpumux dev`"}}
	}
	found := []finding{{Check: "workers", Status: checkNote, Detail: a.phrase(err.Error())}}
	if a.storeURL != "" {
		found = append(found, checkStore(ctx, a.storeURL))
	}
	return found
}

// checkBudget says what enforces the budget of a pool's slots.
func checkBudget(pool contract.PoolInfo) finding {
	f := finding{Check: "pool " + pool.Name, Status: checkGood, Detail: "no memory budget"}
	if pool.Memory > 0 {
		f.Detail = fmt.Sprintf("budget %s enforced by: %s", pool.Memory, strings.Join(pool.Means, ", "))
		if len(pool.Means) == 0 {
			f.Status, f.Fix = checkNote, "nothing enforces the budget; see the worker's log, and docs/memory.md"
		}
	}
	return f
}

// checkStatus is the outcome of one check.
type checkStatus string

const (
	// checkGood needs nothing; Note is no mistake; Bad keeps something from working.
	checkGood checkStatus = "ok"
	checkNote checkStatus = "note"
	checkBad  checkStatus = "FAILED"
)

// finding is a line of `gpumux doctor`.
type finding struct {
	Check  string      `json:"check"`
	Status checkStatus `json:"verdict"`
	Detail string      `json:"detail"`
	// Fix says what to do; it is there whenever the verdict is Bad.
	Fix string `json:"fix,omitempty"`
}

// anyBad reports whether a check failed.
func anyBad(findings []finding) bool {
	return slices.ContainsFunc(findings, func(f finding) bool { return f.Status == checkBad })
}

// printFindings writes a line for each finding, and below it what to do.
func printFindings(to io.Writer, findings []finding) {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		fmt.Fprintf(to, "%-6s  %-*s  %s\n", f.Status, width, f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(to, "%-6s  %-*s  -> %s\n", "", width, "", f.Fix)
		}
	}
}

func checkResult(check string, err error, fix, detail string) finding {
	if err != nil {
		return finding{Check: check, Status: checkBad, Detail: err.Error(), Fix: fix}
	}
	return finding{Check: check, Status: checkGood, Detail: detail}
}

func checkPython(ctx context.Context, python string) finding {
	detail, fix := local.CheckPython(ctx, python)
	f := finding{Check: "python", Status: checkGood, Detail: detail, Fix: fix}
	if fix != "" {
		f.Status = checkBad
	}
	return f
}

func checkDevices(ctx context.Context, python string) []finding {
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return []finding{{Check: "devices", Status: checkBad, Detail: err.Error(), Fix: "repair the driver, or use the pool cpu"}}
	}
	defer inventory.Close()
	findings := probeGPUs(ctx, inventory, inventory.Devices(), python)
	if why := inventory.Unusable(); why != "" {
		return append(findings, finding{Check: "gpu", Status: checkBad, Detail: report.OneLine(why, 400),
			Fix: "repair it, or use the CPU: --devices cpu, in a worker's file devices: cpu"})
	}
	if reason := inventory.Reason(); reason != "" {
		findings = append(findings, finding{Check: "gpu", Status: checkNote, Detail: report.OneLine(reason, 300)})
	}
	return findings
}

func freeText(m gpu.Memory) string {
	if m.Total == 0 {
		return "its memory is unknown"
	}
	return fmt.Sprintf("%s free of %s", gpumux.Size(m.Free), gpumux.Size(m.Total))
}

// probeGPUs tries each GPU with a throw-away process, all at once.
func probeGPUs(ctx context.Context, inventory *gpu.Inventory, list []gpu.Device, python string) []finding {
	list = slices.DeleteFunc(slices.Clone(list), func(d gpu.Device) bool { return d.Kind == gpu.KindCPU || !d.Usable() })
	findings := make([]finding, len(list))
	var all sync.WaitGroup
	for i, d := range list {
		all.Go(func() {
			status, err := inventory.Status(d.UUID)
			f := checkResult("device "+d.Selector(), err, "look at it with nvidia-smi; leave it out of devices until it works", d.Name+", "+freeText(status.Memory))
			if err == nil {
				probe := health.Prober{Python: python}.Try(ctx, d.UUID)
				f.Detail += "; " + probe.String()
				switch {
				case probe.Sick():
					f.Status, f.Fix = checkBad, probe.Hint()
				case probe.Untried != "":
					f.Status = checkNote
				case probe.Blind:
					f.Status = checkNote
					f.Fix = "frameworks' limits alone keep budgets there; in a container use --pid=host (hostPID: true), or driver 565.57 or newer"
				}
			}
			findings[i] = f
		})
	}
	all.Wait()
	return findings
}

func checkStore(ctx context.Context, url string) finding {
	return checkResult("store", tryStore(ctx, url), "check the URL, the credentials and the permissions; see docs/store.md", url+" can be written")
}

func tryStore(ctx context.Context, url string) error {
	st, err := store.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	key := fmt.Sprintf("doctor/%d-%d", os.Getpid(), time.Now().UnixNano())
	if err := st.Objects.Put(ctx, key, []byte("gpumux doctor\n"), objects.Creation{}); err != nil {
		return err
	}
	return st.Objects.Delete(ctx, key)
}
