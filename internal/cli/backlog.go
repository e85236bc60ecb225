package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
)

func backlogCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "backlog [POOL…]",
		Short: "Show what the running maps still have to do, by pool",
		Long: `Show what the running maps still have to do, by pool, for people and for autoscalers: items that wait, items
in slots, the estimated seconds of work for one slot (0 until a map's first items have finished), and the
slots that there are. Pools without a worker count too: docs/scaling.md.

Give several namespaces with commas between them.`,
		Example: "  gpumux backlog\n  gpumux backlog gpu --namespace team-a,team-b --json | jq 'map(.seconds) | add'",
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	a.connectionFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		all := []fleet.Backlog{}
		for namespace := range strings.SplitSeq(a.namespace, ",") {
			a.namespace = strings.TrimSpace(namespace)
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			pools, silent, err := conn.Fleet().Backlog(c.Context(), args)
			conn.close()
			if err != nil {
				return err
			}
			for _, id := range silent {
				a.console.Say("map %s does not answer and is not counted; a worker must serve queue %s", id, gpumux.Queue)
			}
			all = append(all, pools...)
		}
		if *asJSON {
			return printJSON(a.Stdout, all)
		}
		rows := [][]string{{"NAMESPACE", "POOL", "MAPS", "WAITING", "RUNNING", "WORK", "SLOTS", "WORKERS"}}
		for _, b := range all {
			rows = append(rows, []string{b.Namespace, b.Pool, fmt.Sprint(b.Maps), humanize.Comma(b.Waiting), humanize.Comma(b.Running),
				report.Span(time.Duration(b.Seconds * float64(time.Second))), fmt.Sprint(b.Slots), fmt.Sprint(b.Workers)})
		}
		return report.Table(a.Stdout, rows)
	}
	return c
}
