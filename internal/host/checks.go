package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/internal/show"
)

// checkTemporal connects. Without an address it may be that nobody wanted a server yet.
func checkTemporal(ctx context.Context, a *app.App) (*app.Connection, Finding) {
	conn, err := a.Connect(ctx)
	if err == nil {
		detail := fmt.Sprintf("%s, namespace %s", conn.Address, conn.Namespace)
		if conn.UI != "" {
			detail += ", web UI " + conn.UI
		}
		return conn, Finding{Check: "temporal", Verdict: Good, Detail: detail}
	}
	f := Finding{Check: "temporal", Verdict: Bad, Detail: err.Error(), Fix: "start `gpumux dev`, or give --address"}
	if away, ok := errors.AsType[*fleet.ConnectError](err); ok {
		f.Detail, f.Fix = fmt.Sprintf("%s: %v", away.Address, away.Err), a.Phrase(away.Hint)
	}
	if a.Local != nil && a.Address == "" && os.Getenv("TEMPORAL_ADDRESS") == "" {
		f.Verdict = Note
	}
	return nil, f
}

func checkWorkers(ctx context.Context, a *app.App, conn *app.Connection) []Finding {
	all, err := conn.Fleet().Workers(ctx)
	if err != nil {
		return noWorkers(ctx, a, err)
	}
	var findings []Finding
	var stores []string // one for each, with the host of who said it
	hosts := map[string]string{}
	answered := false
	for _, w := range all {
		f := Finding{Check: "worker " + w.Identity, Verdict: Good}
		if w.Offer == nil {
			f.Verdict, f.Detail = Note, a.Phrase(w.Error)
			f.Fix = "if it is gone the server forgets it within minutes; else look at its log"
			findings = append(findings, f)
			continue
		}
		answered = true
		f.Detail = fmt.Sprintf("gpumux %s offers %s", w.Offer.Version, show.Pools(w.Offer.Pools))
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
	if tasks := show.TasksOf(all); len(tasks) > 0 {
		names := make([]string, len(tasks))
		for i, t := range tasks {
			names[i] = t.Name
		}
		findings = append(findings, Finding{Check: "tasks", Verdict: Good, Detail: screen.OneLine(strings.Join(names, ", "), 200)})
	}
	if len(stores) > 1 {
		findings = append(findings, Finding{Check: "store", Verdict: Bad, Detail: "the workers have different stores: " + strings.Join(stores, ", "),
			Fix: "give all workers of a server the same store"})
	}
	switch here, _ := os.Hostname(); {
	case a.StoreURL != "":
		findings = append(findings, checkStore(ctx, a.StoreURL))
	case !answered:
	case strings.HasPrefix(stores[0], "file:") && hosts[stores[0]] != here:
		findings = append(findings, Finding{Check: "store", Verdict: Note,
			Detail: fmt.Sprintf("%s is a folder of host %s; large inputs and results need --store from here", stores[0], hosts[stores[0]])})
	default:
		findings = append(findings, checkStore(ctx, stores[0]))
	}
	return findings
}

func noWorkers(ctx context.Context, a *app.App, err error) []Finding {
	if none, ok := errors.AsType[*fleet.NoWorkerError](err); ok {
		return []Finding{{Check: "workers", Verdict: Bad, Detail: "nobody serves queue " + none.Queue,
			Fix: "start `gpumux worker -f gpumux.yaml` on a host with GPUs, or `gpumux dev`"}}
	}
	found := []Finding{{Check: "workers", Verdict: Note, Detail: a.Phrase(err.Error())}}
	if a.StoreURL != "" {
		found = append(found, checkStore(ctx, a.StoreURL))
	}
	return found
}

// checkBudget says what enforces the budget of a pool's slots.
func checkBudget(pool contract.PoolInfo) Finding {
	f := Finding{Check: "pool " + pool.Name, Verdict: Good, Detail: "no memory budget"}
	if pool.Memory > 0 {
		f.Detail = fmt.Sprintf("budget %s enforced by: %s", pool.Memory, strings.Join(pool.Means, ", "))
		if len(pool.Means) == 0 {
			f.Verdict, f.Fix = Note, "nothing enforces the budget; see the worker's log, and docs/memory.md"
		}
	}
	return f
}

// Verdict is the outcome of one check.
type Verdict string

const (
	// Good needs nothing; Note is no mistake; Bad keeps something from working.
	Good Verdict = "ok"
	Note Verdict = "note"
	Bad  Verdict = "FAILED"
)

// Finding is a line of `gpumux doctor`.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Fix says what to do; it is there whenever the verdict is Bad.
	Fix string `json:"fix,omitempty"`
}

// Failed reports whether a check failed.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Verdict == Bad })
}

// PrintFindings writes a line for each finding, and below it what to do.
func PrintFindings(to io.Writer, findings []Finding) {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		fmt.Fprintf(to, "%-6s  %-*s  %s\n", f.Verdict, width, f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(to, "%-6s  %-*s  -> %s\n", "", width, "", f.Fix)
		}
	}
}
