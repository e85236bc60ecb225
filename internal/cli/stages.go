package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/strict"
	"github.com/gpumux/gpumux/workers/config"
)

// parseSlots reads a number for all pools, or POOL=N,POOL=N.
func (f *taskFlags) parseSlots(text string) error {
	if !strings.Contains(text, "=") {
		return f.pool.Slots.UnmarshalText([]byte(text))
	}
	for each := range strings.SplitSeq(text, ",") {
		pool, number, _ := strings.Cut(each, "=")
		one := config.Pool{Name: pool}
		err := names.Pool(pool)
		if err == nil {
			err = one.Slots.UnmarshalText([]byte(number))
		}
		if err != nil {
			return fmt.Errorf("%s: %w; write cpu=6,gpu=2", each, err)
		}
		if slices.Contains(f.slotted(), pool) {
			return fmt.Errorf("pool %s is named twice", pool)
		}
		f.slots = append(f.slots, one)
	}
	return nil
}

func (f *taskFlags) slotted() (pools []string) {
	for _, each := range f.slots {
		pools = append(pools, each.Name)
	}
	return pools
}

// size gives pools the slots that --slots names for them.
func (f *taskFlags) size(pools []config.Pool) error {
	for _, each := range f.slots {
		at := slices.IndexFunc(pools, func(p config.Pool) bool { return p.Name == each.Name })
		if at < 0 {
			return usage("--slots: nothing runs in pool %s; name it with TASK@%s or --pool, or leave it out", each.Name, each.Name)
		}
		pools[at].Slots = each.Slots
	}
	return nil
}

func (f *mapFlags) parseStage(text string) error {
	var stage gpumux.Stage
	if mistake := strict.Decode([]byte(text), &stage); mistake != nil {
		return fmt.Errorf("%s %s", mistake.Field, mistake.Message)
	}
	f.input.Stages = append(f.input.Stages, stage)
	return nil
}

// isData reports whether a word is a file that has no functions.
func isData(word string) bool {
	info, err := os.Stat(word)
	return err == nil && info.Mode().IsRegular() && !slices.Contains([]string{"", ".py", ".R", ".r"}, filepath.Ext(word))
}

func (f *mapFlags) readTasks(m *mistakes, c *cobra.Command, args []string) {
	in := &f.input
	if at := slices.IndexFunc(args, isData); at >= 0 && c.ArgsLenAtDash() < 0 {
		in.Task = "task"
		m.add("%s is a file and no TASK: name a file of items with --in; for files as items put the pattern of --glob in quotes", args[at])
		return
	}
	if in.Stages == nil {
		if c.ArgsLenAtDash() >= 0 || len(args) == 0 {
			f.readTask(m, c, args)
			m.when(len(f.keep) > 0, "--keep goes with several TASKs")
			return
		}
		for _, word := range args {
			in.Stages = append(in.Stages, stageOf(word))
			m.when(strings.TrimSpace(word) == "", "TASK is empty")
		}
	} else if len(args) > 0 {
		m.add("give either TASKs or --stage, not both: %s", strings.Join(args, " "))
	}
	for _, task := range f.keep {
		at := slices.IndexFunc(in.Stages, func(s gpumux.Stage) bool { return s.Task == task || functionOf(s.Task) == task })
		switch {
		case at < 0:
			m.add("--keep %s is none of the stages %s", task, in.Name())
		case at == len(in.Stages)-1:
			m.add("--keep %s: what the last stage gives are the results, which stay in any case", task)
		default:
			in.Stages[at].Keep = true
		}
	}
	if len(in.Stages) == 1 {
		*in = in.Steps()[0]
	} else if f.local {
		f.assignPools(m)
	}
}

// stageOf reads TASK@POOL,POOL. An @ in a folder's name is part of the task.
func stageOf(word string) gpumux.Stage {
	at := strings.LastIndex(word, "@")
	if at < 0 || at < strings.LastIndexAny(word, ":/") {
		return gpumux.Stage{Task: word}
	}
	return gpumux.Stage{Task: word[:at], Ladder: strings.Split(word[at+1:], ",")}
}

func functionOf(task string) string { return task[strings.LastIndex(task, ":")+1:] }

// assignPools gives the stages the pools that --slots names, in turn, where nothing else
// names one.
func (f *mapFlags) assignPools(m *mistakes) {
	stages, pools := f.input.Stages, f.slotted()
	without := slices.IndexFunc(stages, func(s gpumux.Stage) bool { return len(s.Ladder) == 0 })
	switch {
	case without < 0 || len(f.input.Ladder) > 0:
	case slices.ContainsFunc(stages, func(s gpumux.Stage) bool { return len(s.Ladder) > 0 }):
		m.add("TASK %s has no pool, and others have: write %s@cpu or the like, or give --pool for those without", stages[without].Task, stages[without].Task)
	case len(pools) > len(stages):
		m.add("--slots names %d pools for %d stages; leave some out, or name those of each stage as TASK@POOL,POOL", len(pools), len(stages))
	case len(pools) > 0:
		for i := range stages {
			stages[i].Ladder = []string{pools[i%len(pools)]}
		}
		f.assigned = placesOf(stages)
	}
}

func placesOf(stages []gpumux.Stage) string {
	places := make([]string, len(stages))
	for i, s := range stages {
		places[i] = functionOf(s.Task) + " on " + strings.Join(s.Ladder, ",")
	}
	return "stages: " + strings.Join(places, ", ")
}

// ownPools gives each stage a pool of its own on the CPU.
func ownPools(o *local.Options, stages []gpumux.Stage) error {
	pool := o.Pools[0]
	if !slices.Equal(pool.Devices, gpu.Selection{"cpu"}) {
		_ = o.Inventory.Close()
		words := make([]string, len(stages))
		for i, s := range stages {
			words[i] = s.Task + "@" + []string{"cpu", "gpu"}[i%2]
		}
		return usage("this machine has a GPU: name the pools with --slots cpu=4,gpu=1, which stages take in turn, or those of each: %s", strings.Join(words, " "))
	}
	o.Pools = nil
	for i := range stages {
		if pool.Name = "cpu"; i > 0 {
			pool.Name = fmt.Sprintf("cpu-%d", i+1)
		}
		o.Pools, stages[i].Ladder = append(o.Pools, pool), []string{pool.Name}
	}
	return nil
}

// tellChanged says what a map whose code has changed from a stage on runs again.
func (r *mapRun) tellChanged() {
	stages, first := r.m.Input.Stages, r.h.Changed
	var kept []string
	for _, s := range stages[:first] {
		kept = append(kept, functionOf(s.Task))
	}
	r.a.console.Say("note: the files of task %s have changed since map %s was stopped: its items run again; what %s gave is kept", stages[first].Task, r.h.ID, strings.Join(kept, " and "))
}
