package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
)

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
