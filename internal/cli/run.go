package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

type runFlags struct {
	taskFlags
	json bool
}

func runCommand(a *app) *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run TASK [ITEM]",
		Short: "Run a task on one item, with the result on standard output",
		Long: `Run a task on one item. ITEM is a JSON value, - reads it from standard input, and without it the item is
null. The result goes to standard output, what the task printed to standard error.`,
		Example: `  gpumux run embed '{"text":"hello"}'
  gpumux run embed.py:embed '"hello"' --local
  jq -c .[0] items.json | gpumux run embed -`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print the whole result as JSON, a fault too")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runOne(a, c, args, f) }
	return c
}

// taskWord is a task in a file, which is no JSON.
var taskWord = regexp.MustCompile(`^[^"{\[]*\.(py|R):\w+$`)

func (f *runFlags) check(c *cobra.Command, args []string) (item string, err error) {
	var m mistakes
	rest := f.cutTask(&m, c, args)
	if len(rest) > 1 {
		m.add("more than one ITEM: %s; quote it: '{\"key\": 1}'", strings.Join(rest, " "))
	} else if len(rest) == 1 {
		item = rest[0]
		m.when(taskWord.MatchString(item), "more than one TASK: %s; `gpumux map` takes several, its stages", strings.Join(args, " "))
	}
	f.taskFlags.check(&m, c)
	return item, m.err()
}

func runOne(a *app, c *cobra.Command, args []string, f *runFlags) error {
	text, err := f.check(c, args)
	if err != nil {
		return err
	}
	if f.local {
		if err := a.needLocal("--local"); err != nil {
			return err
		}
	}
	item, err := readItem(c.Context(), a, text)
	if err != nil {
		return err
	}
	m := starter.Map{Label: "one item", Input: f.input}
	m.Input.Items, m.Input.Chunk = []json.RawMessage{item}, 1
	ctx := c.Context()
	if !f.local {
		conn, err := a.connectWithStore(ctx)
		if err != nil {
			return err
		}
		defer conn.close()
		steps := m.Input.Steps()
		if err := f.served(ctx, conn, steps); err != nil {
			return err
		}
		return callOne(ctx, a, conn, m, steps, f.json)
	}
	o, err := f.optionsHere(ctx, a, &m.Input)
	if err != nil {
		return err
	}
	o.Headless, o.Brief = true, true
	m.Input.Task, m.Input.Ladder = o.Task.Name, nil
	for _, pool := range o.Pools {
		m.Input.Ladder = append(m.Input.Ladder, pool.Name)
	}
	s, err := local.Open(ctx, o)
	if err != nil {
		return inFlags(err)
	}
	defer s.Close(a.hard)
	return callOne(s.Context(), a, connectionOf(s), m, nil, f.json)
}

func readItem(ctx context.Context, a *app, text string) (json.RawMessage, error) {
	name := "ITEM"
	if text == "-" {
		stdin := readUntil(ctx, a.Stdin)
		defer stdin.Close()
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		text, name = string(data), "standard input"
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return json.RawMessage("null"), nil
	}
	if !json.Valid([]byte(text)) {
		hint := "write it as JSON"
		if quoted, err := json.Marshal(text); err == nil && !strings.ContainsAny(text, `{[`) {
			hint = fmt.Sprintf("a text is written with quotes: '%s'", quoted)
		}
		return nil, usage("%s is not JSON: %s; %s", name, report.OneLine(text, 60), hint)
	}
	if len(text) > gpumux.InlineBytes {
		return nil, usage("%s has %s, more than the %s that travel inline; use `gpumux map` with a file", name,
			gpumux.Size(len(text)), gpumux.Size(gpumux.InlineBytes))
	}
	return json.RawMessage(text), nil
}

// callOne runs a map of one item, and cancels it when it is interrupted.
func callOne(ctx context.Context, a *app, conn *connection, m starter.Map, steps []gpumux.MapInput, whole bool) error {
	id, _ := m.Identify()
	m.ID = "run-" + id + "-" + strings.ToLower(rand.Text()[:8])
	h, err := conn.Start(ctx, m)
	if err != nil {
		return err
	}
	a.console.Quiet = true
	end, err := follow(ctx, a, conn, h, steps)
	if errors.Is(err, errInterrupted) {
		canceling, cancel := context.WithTimeout(a.hard, 5*time.Second)
		defer cancel()
		if err := h.Cancel(canceling); err != nil {
			a.console.Say("%v", err)
		}
		return errInterrupted
	}
	if err != nil {
		return explain(a, err)
	}
	for result, err := range conn.Completed(end.Summary).Results(ctx, starter.ReadOptions{}) {
		if err != nil {
			return err
		}
		return printResult(a, result, whole)
	}
	return fmt.Errorf("map %s ended without a result", h.ID)
}

func printResult(a *app, result gpumux.Result, whole bool) error {
	if result.Printed != "" {
		a.console.Write([]byte(strings.TrimRight(result.Printed, "\n") + "\n"))
	}
	if whole {
		if err := printJSON(a.Stdout, result); err != nil {
			return err
		}
	} else if result.Fault == nil {
		if _, err := a.Stdout.Write(append(text.Unescaped(bytes.TrimSpace(result.Value)), '\n')); err != nil {
			return err
		}
	}
	if result.Fault != nil {
		a.console.Write([]byte(report.FaultText(*result.Fault)))
		a.console.Say("gpumux: %s", report.OneLine(result.Fault.Error(), 1000))
		return exitFailed
	}
	if n := len(result.Files); n > 0 {
		a.console.Say("gpumux: the item saved %d files (%s), and `run` has no place for files; use `gpumux map --files DIR`", n, report.OneLine(strings.Join(result.Files, ", "), 200))
		return exitFailed
	}
	return nil
}
