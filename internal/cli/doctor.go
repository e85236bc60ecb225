package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/text"
)

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
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.tell(c.Context(), examine(c.Context(), a, cmp.Or(python, "python3")), asJSON, exitFailed)
	}
	return c
}

type checkStatus string

const (
	// checkGood needs nothing; checkNote is no mistake; checkBad keeps something from
	// working.
	checkGood checkStatus = "ok"
	checkNote checkStatus = "note"
	checkBad  checkStatus = "FAILED"
)

type finding struct {
	Check  string      `json:"check"`
	Status checkStatus `json:"status"`
	Detail string      `json:"detail"`
	// Fix says what to do; it is there whenever the status is checkBad.
	Fix string `json:"fix,omitempty"`
}

func checked(check string, err error, fix, detail string) finding {
	if err != nil {
		return finding{check, checkBad, err.Error(), fix}
	}
	return finding{Check: check, Status: checkGood, Detail: detail}
}

// tell prints findings, and returns an exit code where a check failed.
func (a *app) tell(ctx context.Context, findings []finding, asJSON bool, failed exitCode) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(a.Stdout, findings); err != nil {
			return err
		}
	} else {
		rows := [][]string{}
		for _, f := range findings {
			rows = append(rows, []string{string(f.Status), f.Check, f.Detail})
			if f.Fix != "" {
				rows = append(rows, []string{"", "", "-> " + f.Fix})
			}
		}
		if err := report.Table(a.Stdout, rows); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Status == checkBad }) {
		return failed
	}
	return nil
}

func examine(ctx context.Context, a *app, python string) []finding {
	detail, fix := local.CheckPython(ctx, python)
	findings := []finding{{Check: "python", Status: checkGood, Detail: detail}}
	if fix != "" {
		findings[0] = finding{"python", checkBad, detail, fix}
	}
	findings = append(findings, checkDevices(ctx, python)...)
	conn, reached := checkTemporal(ctx, a)
	findings = append(findings, reached)
	url, id := conn.storeOr(a.storeURL)
	if conn != nil {
		defer conn.close()
		var workers []finding
		workers, url = checkWorkers(ctx, a, conn, url)
		findings = append(findings, workers...)
	}
	if url != "" {
		findings = append(findings, checkStore(ctx, url, id))
	}
	return findings
}

// checkTemporal connects. Without an address it may be that nobody wanted a server yet.
func checkTemporal(ctx context.Context, a *app) (*connection, finding) {
	conn, err := a.connect(ctx)
	if err == nil {
		detail := fmt.Sprintf("%s, namespace %s", conn.address, conn.Namespace) + text.When(conn.ui != "", ", web UI %s", conn.ui)
		return conn, finding{Check: "temporal", Status: checkGood, Detail: detail}
	}
	f := finding{"temporal", checkBad, err.Error(), "start `gpumux dev`, or give --address"}
	if away, ok := errors.AsType[*fleet.ConnectError](err); ok {
		f.Detail, f.Fix = strings.TrimPrefix(fmt.Sprintf("%s: %v", away.Address, away.Err), ": "), a.phrase(away.Hint)
	}
	if a.Local != nil && a.address+a.connectionFile+os.Getenv("TEMPORAL_ADDRESS")+os.Getenv("TEMPORAL_CONFIG_FILE") == "" {
		f.Status = checkNote
	}
	return nil, f
}

func checkWorkers(ctx context.Context, a *app, conn *connection, named string) (findings []finding, storeURL string) {
	add := func(check string, status checkStatus, detail, fix string) {
		if f := (finding{check, status, detail, fix}); !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
	all, err := conn.Fleet().Workers(ctx)
	if none, ok := errors.AsType[*fleet.NoWorkerError](err); ok {
		add("workers", checkBad, "nobody serves queue "+none.Queue, "start `gpumux worker -f gpumux.yaml` on a host with GPUs, or `gpumux dev`")
		return findings, named
	} else if err != nil {
		add("workers", checkNote, a.phrase(err.Error()), "")
		return findings, named
	}
	var stores []string // one for each, with the host of who said it
	hosts := map[string]string{}
	for _, w := range all {
		if w.Offer == nil {
			add("worker "+w.Identity, checkNote, a.phrase(w.Error), "if it is gone the server forgets it within minutes; else look at its log")
			continue
		}
		add("worker "+w.Identity, checkGood, fmt.Sprintf("gpumux %s offers %s", w.Offer.Version, report.Pools(w.Offer.Pools)), "")
		if _, known := hosts[w.Offer.Store]; !known {
			hosts[w.Offer.Store], stores = w.Offer.Host, append(stores, w.Offer.Store)
		}
	}
	if len(stores) > 1 {
		add("store", checkBad, "the workers have different stores: "+strings.Join(stores, ", "), "give all workers of a server the same store")
	}
	if named != "" || len(stores) == 0 {
		return findings, named
	}
	if here, _ := os.Hostname(); strings.HasPrefix(stores[0], "file:") && hosts[stores[0]] != here {
		add("store", checkNote, fmt.Sprintf("%s is a folder of host %s; large inputs and results need --store from here", stores[0], hosts[stores[0]]), "")
		return findings, ""
	}
	return findings, stores[0]
}

func checkDevices(ctx context.Context, python string) []finding {
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return []finding{{"devices", checkBad, err.Error(), "repair the driver, or use the pool cpu"}}
	}
	defer inventory.Close()
	findings := probeGPUs(ctx, inventory, inventory.Devices(), python)
	if why := inventory.Unusable(); why != "" {
		return append(findings, finding{"gpu", checkBad, report.OneLine(why, 400),
			"repair it, or use the CPU: --devices cpu, in a worker's file devices: cpu"})
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
			f := checked("device "+d.Selector(), err, "look at it with nvidia-smi; leave it out of devices until it works", d.Name+", "+freeText(status.Memory))
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

func checkStore(ctx context.Context, url, id string) finding {
	return checked("store", tryStore(ctx, url, id), "check the URL, the credentials and the permissions; see docs/store.md", url+" can be written")
}

func tryStore(ctx context.Context, url, id string) error {
	st, err := store.OpenSame(ctx, url, id)
	if err != nil {
		return err
	}
	defer st.Close()
	key := fmt.Sprintf("doctor/%d-%d", os.Getpid(), time.Now().UnixNano())
	if err := st.Objects.Put(ctx, key, strings.NewReader("gpumux doctor\n"), objects.Creation{}); err != nil {
		return err
	}
	return st.Objects.Delete(ctx, key)
}
