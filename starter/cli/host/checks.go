package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/checks"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/cli/show"
	"github.com/gpumux/gpumux/starter/connect"
	"github.com/gpumux/gpumux/starter/fleet"
)

// checkTemporal connects. Without an address it may be that nobody wanted a server yet.
func (a *commands) checkTemporal(ctx context.Context) (*app.Connection, checks.Finding) {
	conn, err := a.Connect(ctx)
	if err == nil {
		detail := fmt.Sprintf("%s, namespace %s", conn.Address, conn.Namespace)
		if conn.UI != "" {
			detail += ", web UI " + conn.UI
		}
		return conn, checks.Finding{Check: "temporal", Verdict: checks.Good, Detail: detail}
	}
	f := checks.Finding{Check: "temporal", Verdict: checks.Bad, Detail: err.Error(), Fix: "start `gpumux dev`, or give --address"}
	var away *connect.Error
	if errors.As(err, &away) {
		f.Detail, f.Fix = fmt.Sprintf("%s: %v", away.Address, away.Err), away.Hint
	}
	if a.Local != nil && a.Address == "" && os.Getenv("TEMPORAL_ADDRESS") == "" {
		f.Verdict = checks.Note
	}
	return nil, f
}

// checkWorkers asks all workers what they offer and tries their store.
func (a *commands) checkWorkers(ctx context.Context, conn *app.Connection) []checks.Finding {
	all, err := conn.Fleet().Workers(ctx)
	if err != nil {
		return a.noWorkers(ctx, err)
	}
	var findings []checks.Finding
	var stores []string // one for each, with the host of who said it
	hosts := map[string]string{}
	answered := false
	for _, w := range all {
		f := checks.Finding{Check: "worker " + w.Identity, Verdict: checks.Good}
		if w.Offer == nil {
			f.Verdict, f.Detail = checks.Note, w.Error
			f.Fix = "if it is gone the server forgets it within minutes; else look at its log"
			findings = append(findings, f)
			continue
		}
		answered = true
		f.Detail = fmt.Sprintf("gpumux %s offers %s", w.Offer.Version, show.Pools(w.Offer.Pools))
		findings = append(findings, f)
		if len(w.Offer.Tasks) == 0 {
			findings = append(findings, checks.Finding{Check: "tasks", Verdict: checks.Bad, Detail: w.Identity + " offers none", Fix: "name tasks in the worker's file"})
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
	if tasks := show.TasksOf(all); len(tasks) > 0 {
		names := make([]string, len(tasks))
		for i, t := range tasks {
			names[i] = t.Name
		}
		findings = append(findings, checks.Finding{Check: "tasks", Verdict: checks.Good, Detail: screen.OneLine(strings.Join(names, ", "), 200)})
	}
	if len(stores) > 1 {
		findings = append(findings, checks.Finding{Check: "store", Verdict: checks.Bad, Detail: "the workers have different stores: " + strings.Join(stores, ", "),
			Fix: "give all workers of a server the same store"})
	}
	switch here, _ := os.Hostname(); {
	case a.StoreURL != "":
		findings = append(findings, checks.Store(ctx, a.StoreURL))
	case !answered:
	case strings.HasPrefix(stores[0], "file:") && hosts[stores[0]] != here:
		findings = append(findings, checks.Finding{Check: "store", Verdict: checks.Note,
			Detail: fmt.Sprintf("%s is a folder of host %s; large inputs and results need --store from here", stores[0], hosts[stores[0]])})
	default:
		findings = append(findings, checks.Store(ctx, stores[0]))
	}
	return findings
}

// noWorkers says why no worker can be asked.
func (a *commands) noWorkers(ctx context.Context, err error) []checks.Finding {
	var none *fleet.NoWorker
	if errors.As(err, &none) {
		return []checks.Finding{{Check: "workers", Verdict: checks.Bad, Detail: "nobody serves queue " + none.Queue,
			Fix: "start `gpumux worker -f gpumux.yaml` on a host with GPUs, or `gpumux dev`"}}
	}
	found := []checks.Finding{{Check: "workers", Verdict: checks.Note, Detail: err.Error()}}
	if a.StoreURL != "" {
		found = append(found, checks.Store(ctx, a.StoreURL))
	}
	return found
}

// checkPool finds out whether a pool is served, and what keeps its slots within their budget.
func checkPool(ctx context.Context, conn *app.Connection, pool gpumux.PoolInfo) checks.Finding {
	rungs, err := conn.Fleet().Serving(ctx, []string{pool.Name})
	if err != nil {
		return checks.Finding{Check: "pool " + pool.Name, Verdict: checks.Bad, Detail: err.Error(), Fix: "check the connection to Temporal"}
	}
	if !rungs[1].Served() {
		return checks.Finding{Check: "pool " + pool.Name, Verdict: checks.Bad, Detail: "nobody polls " + rungs[1].Queue, Fix: "restart the worker and read its log"}
	}
	return servedPool(pool, rungs[1].Queue)
}

// servedPool is the finding about a pool that is served.
func servedPool(pool gpumux.PoolInfo, queue string) checks.Finding {
	f := checks.Finding{Check: "pool " + pool.Name, Verdict: checks.Good, Detail: "served on queue " + queue}
	if pool.Memory > 0 {
		f.Detail += fmt.Sprintf("; budget %s enforced by: %s", pool.Memory, strings.Join(pool.Means, ", "))
		if len(pool.Means) == 0 {
			f.Verdict, f.Fix = checks.Note, "nothing enforces the budget; see the worker's log, and docs/memory.md"
		}
	}
	return f
}
