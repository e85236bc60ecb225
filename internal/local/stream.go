package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/workers"
)

type StreamOptions struct {
	// Items calls give with each item, or with the mistake in its line, and returns after
	// the last one, or when ctx ends: the stream has then. give copies the item.
	Items func(ctx context.Context, give func(item []byte, wrong *gpumux.SourceError) error) error
	// Unordered yields each result at once. Default: in the order of the items.
	Unordered bool
	// Input has the options of the items: Mode, Timeout, Attempts, RetryOn, Arg, Key and
	// WithItem. ArgFile is a file of this host.
	Input gpumux.MapInput
}

const (
	// maxAhead bounds what is read ahead, in bytes; an item counts minWeight more.
	maxAhead  = 64 << 20
	minWeight = 16 << 10
	// share is how much work, in time, one slot takes ahead; maxShare bounds its items.
	share    = 50 * time.Millisecond
	maxShare = 256
	// A slot whose task runs many items at the same time has up to maxAbreast shares, of
	// abreastItems times as many items together: each ends with its slowest one.
	maxAbreast   = 64
	abreastItems = 3
)

// Stream runs Options.Task over items as they come, in the slots of the first pool, and
// yields results as lines. It needs no server and keeps nothing. An error of Items comes
// after the results of the items before it.
func Stream(ctx context.Context, o Options, in StreamOptions) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		enough := false
		err := stream(ctx, o, in, func(line []byte) bool {
			enough = !yield(line, nil)
			return !enough
		})
		if err != nil && !enough {
			yield(nil, err)
		}
	}
}

func stream(ctx context.Context, o Options, in StreamOptions, yield func([]byte) bool) (err error) {
	defer o.closeInventory()
	if err := o.fill(ctx, in.Input.Mode); err != nil {
		return err
	}
	conf, err := o.configure(ctx)
	if err != nil {
		return err
	}
	w, err := workers.New(conf, workers.Options{Alone: true, Dedicated: true, Inventory: o.Inventory, Version: o.Version,
		Log: o.Log, Notice: o.Say, StopTimeout: cmp.Or(o.StopTimeout, time.Second)})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := w.Stop(context.WithoutCancel(ctx)); stopped != nil && err == nil {
			err = unavailable("stop the slots: %w", stopped)
		}
	}()
	if err := w.Start(ctx); err != nil {
		return unavailable("start the slots: %w", err)
	}
	pool := w.Describe().Pools[0]
	s := &streaming{StreamOptions: in, worker: w, pool: pool.Name, task: o.Task.Name, slots: cmp.Or(pool.MaxSlots, pool.Slots),
		room: semaphore.NewWeighted(maxAhead), queue: make(chan streamed, maxAhead/minWeight), lines: make(chan streamed, maxShare)}
	return s.run(ctx, yield)
}

type streaming struct {
	StreamOptions
	worker     *workers.Worker
	pool, task string
	slots      int
	room       *semaphore.Weighted
	queue      chan streamed
	lines      chan streamed
	// each is how long an item took lately of a slot's time, in nanoseconds. serving is how
	// many shares run.
	each, serving atomic.Int64
	// batch is how many items a slot takes in one call, concurrent how many it runs at the
	// same time; 0: one.
	batch, concurrent atomic.Int64
	// serveMore begins to serve more shares of each slot, which runs so many items at the
	// same time.
	serveMore func(concurrent int)
	// failed is the error of Items.
	failed error
}

// streamed is an item, or later the line of its result.
type streamed struct {
	index  int64
	text   []byte
	weight int64
}

func (s *streaming) run(ctx context.Context, yield func([]byte) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work, within := errgroup.WithContext(ctx)
	work.Go(func() error { return s.read(within) })
	serve := func() error { return s.serve(within) }
	s.serveMore = func(concurrent int) {
		for range s.slots * (min(abreastItems*concurrent, maxAbreast) - 1) {
			work.Go(serve)
		}
	}
	for range s.slots {
		work.Go(serve)
	}
	var err error
	go func() {
		err = work.Wait()
		close(s.lines)
	}()
	enough := s.yieldLines(yield, stop)
	for range s.lines { // until nothing runs any more
	}
	if enough {
		return nil
	}
	return cmp.Or(err, s.failed)
}

func (s *streaming) read(ctx context.Context) error {
	defer close(s.queue)
	var index int64
	s.failed = s.Items(ctx, func(item []byte, wrong *gpumux.SourceError) error {
		one := streamed{index, slices.Clone(item), min(minWeight+int64(len(item)), maxAhead)}
		if err := s.room.Acquire(ctx, one.weight); err != nil {
			return context.Cause(ctx)
		}
		index++
		if wrong != nil {
			return s.deliver(ctx, one, s.refusal(*wrong))
		}
		s.queue <- one // it has room for as many as there can be
		return nil
	})
	return context.Cause(ctx)
}

func (s *streaming) refusal(wrong gpumux.SourceError) gpumux.Result {
	fault := &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "read", Task: s.task, Item: wrong.Text, Hint: wrong.Hint}
	wrong.Text, wrong.Hint = "", ""
	fault.Message = wrong.Error()
	result := gpumux.Result{Fault: fault}
	if s.Input.Key != "" {
		result.Key = json.RawMessage("null")
	}
	return result
}

func (s *streaming) deliver(ctx context.Context, item streamed, r gpumux.Result) error {
	r.Index = item.index
	line, err := results.Append(nil, r)
	if err != nil {
		return err
	}
	select {
	case s.lines <- streamed{item.index, bytes.TrimSuffix(line, []byte{'\n'}), item.weight}:
	case <-ctx.Done():
	}
	return nil
}

func (s *streaming) serve(ctx context.Context) error {
	in := s.Input
	for {
		batch := s.take(ctx)
		if len(batch) == 0 {
			return context.Cause(ctx)
		}
		items := make([]json.RawMessage, len(batch))
		for i, one := range batch {
			items[i] = one.text
		}
		began, abreast := time.Now(), s.serving.Add(1)
		var failed error
		chunk := contract.Chunk{Task: s.task, Edition: gpumux.AnyEdition, Mode: in.Mode, Timeout: in.Timeout, Attempts: in.Attempts, RetryOn: in.RetryOn, Arg: in.Arg, ArgFile: in.ArgFile, Items: items, Key: in.Key,
			WithItem: in.WithItem}
		err := s.worker.RunDirect(ctx, s.pool, chunk, s.meet, func(r gpumux.Result) { failed = cmp.Or(failed, s.deliver(ctx, batch[r.Index], r)) })
		s.serving.Add(-1)
		if err = cmp.Or(err, failed); err != nil {
			return fmt.Errorf("items from %d on: %w", batch[0].index, err)
		}
		// Of shares side by side each has a part of the time.
		s.each.Store(int64(time.Since(began)) * int64(s.slots) / (int64(len(batch)) * max(abreast, int64(s.slots))))
	}
}

// meet learns how many items a process takes at a time.
func (s *streaming) meet(batch, concurrent int) {
	s.batch.Store(int64(batch))
	if concurrent > 0 && s.concurrent.CompareAndSwap(0, int64(concurrent)) {
		s.serveMore(concurrent)
	}
}

// take waits for an item and adds those behind it, up to the slot's share.
func (s *streaming) take(ctx context.Context) (batch []streamed) {
	select {
	case one, ok := <-s.queue:
		if !ok {
			return nil
		}
		batch = append(batch, one)
	case <-ctx.Done():
		return nil
	}
	// A task that takes many items at once gets them, however long they take.
	limit := max(s.batch.Load(), (abreastItems*s.concurrent.Load()+maxAbreast-1)/maxAbreast)
	if each := s.each.Load(); each > 0 {
		limit = max(limit, int64(share)/each)
	}
	for range min(len(s.queue)/s.slots, int(limit)-1, maxShare-1) {
		select {
		case one, ok := <-s.queue:
			if !ok {
				return batch
			}
			batch = append(batch, one)
		default:
			return batch
		}
	}
	return batch
}

// yieldLines yields finished lines until the consumer has enough, and then stops the
// rest.
func (s *streaming) yieldLines(yield func([]byte) bool, stop func()) (enough bool) {
	next, held := int64(0), map[int64]streamed{}
	give := func(one streamed) bool {
		s.room.Release(one.weight)
		if !yield(one.text) {
			stop()
			enough = true
		}
		return !enough
	}
	for one := range s.lines {
		if s.Unordered {
			if !give(one) {
				return true
			}
		} else {
			held[one.index] = one
			for first, ok := held[next]; ok; first, ok = held[next] {
				delete(held, next)
				next++
				if !give(first) {
					return true
				}
			}
		}
		if len(s.lines) == 0 && !yield(nil) { // a pause
			stop()
			return true
		}
	}
	return false
}
