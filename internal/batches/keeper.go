package batches

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/strict"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

const (
	// look is the time between two looks at a batch.
	look = 2 * time.Second
	// noted is how long after its start a map that is not there may be one whose start was
	// cut off. Later it may be one that Temporal has forgotten.
	noted = 12 * time.Hour
	// maxMistakes are told of a file, maxRequests is how many a batch may have, maxLine the
	// bytes of one.
	maxMistakes, maxRequests, maxLine = 100, 1_000_000, 64 << 20
)

// keep repeats the steps of something until one says that it is over, or the server ends.
// An error that comes again is said once.
func (s *Server) keep(what string, step func() (over bool)) {
	for over, last := false, ""; !over && s.ctx.Err() == nil; {
		if err := try(func() { over = step() }); err != nil && s.ctx.Err() == nil {
			if err.Error() != last {
				s.Say("%s: %v; it is tried again", what, err)
			}
			last = err.Error()
			s.pause()
		}
	}
}

func (s *Server) pause() {
	select {
	case <-time.After(look):
	case <-s.ctx.Done():
	}
}

// takeUp goes on with the batches that the server before has left open.
func (s *Server) takeUp() (over bool) {
	st := must(s.Starter.UseStore(s.ctx))
	var keys []string
	for o, err := range st.Objects.Objects(s.ctx, names.Batches) {
		if check(err); strings.HasPrefix(path.Base(o.Key), batchPrefix) {
			keys = append(keys, o.Key)
		}
	}
	var failed error
	owner := func(key string) shelf { return shelf{st, path.Base(path.Dir(key))} }
	read := func(key string) (b batch, err error) {
		return b, owner(key).read(s.ctx, strings.TrimSuffix(path.Base(key), recordEnding), &b)
	}
	at := 0
	for b, err := range objects.Ahead(objects.Abreast, slices.Values(keys), read) {
		if failed = cmp.Or(failed, err); err == nil && !b.over() {
			s.carry(owner(keys[at]), &b)
		}
		at++
	}
	check(failed)
	return true
}

// place is what the others have to know of an open batch: its model, once that is known.
type place struct {
	model   string
	started bool
}

func placeOf(b *batch) (p place) {
	if b.Model != nil {
		p = place{*b.Model, b.Begun > 0}
	}
	return p
}

// carry begins to take the steps of a batch.
func (s *Server) carry(on shelf, b *batch) {
	id := b.ID
	if _, known := s.open.LoadOrStore(id, placeOf(b)); known {
		return
	}
	s.keepers.Go(func() {
		s.keep("batch "+id+" of "+on.owner, func() bool { return s.step(s.ctx, on, id) })
		s.open.Delete(id)
	})
}

// step does one thing for a batch.
func (s *Server) step(ctx context.Context, on shelf, id string) (over bool) {
	b := &batch{}
	err := on.read(ctx, id, b)
	if b.over() || errors.Is(err, fs.ErrNotExist) {
		return true
	}
	switch check(err); {
	case b.Total > 0 && b.Begun > 0:
		s.follow(ctx, on, b)
	case b.Total > 0:
		s.begin(ctx, on, b)
	case b.Status == cancelling:
		s.end(ctx, on, b, func(b *batch) { b.move(cancelled) })
	default:
		s.validate(ctx, on, b)
	}
	return false
}

// validate reads the input. What is wrong with it ends the batch before anything runs.
func (s *Server) validate(ctx context.Context, on shelf, b *batch) {
	s.reading.Lock()
	defer s.reading.Unlock()
	var all []mistake
	noteIf := func(is bool, line *int64, param, format string, args ...any) {
		if is && (len(all) == 0 || all[len(all)-1].Line != line) {
			all = append(all, mistake{"invalid_request", strings.TrimSpace(param + " " + fmt.Sprintf(format, args...)), param, line})
		}
	}
	n, model, seen, seed := int64(0), "", map[uint64]bool{}, maphash.MakeSeed()
	err := eachRequest(ctx, on, b, func(line int64, text []byte) bool {
		var r struct {
			CustomID string `json:"custom_id"`
			Method   string `json:"method"`
			URL      string `json:"url"`
			Body     struct {
				Model string `json:"model"`
			} `json:"body"`
		}
		at := &line
		if bad := strict.Decode(text, &r, json.RejectUnknownMembers(false)); bad != nil {
			noteIf(true, at, bad.Field, "%s", bad.Message)
		}
		if r.Body.Model == "" && len(s.Models) == 1 {
			r.Body.Model = s.modelNames()
		}
		if n++; model == "" && s.Models[r.Body.Model] != nil {
			model = r.Body.Model
		}
		id := maphash.String(seed, r.CustomID)
		noteIf(r.CustomID == "" || seen[id], at, "custom_id", "is %.100q; give each request one of its own", r.CustomID)
		noteIf(r.Method != "POST", at, "method", "is %.100q; give POST", r.Method)
		noteIf(r.URL != b.Endpoint, at, "url", "is %.100q; give %s, as the batch has it", r.URL, b.Endpoint)
		noteIf(model == "", at, "body.model", "is %.200q; there is %s", r.Body.Model, s.modelNames())
		noteIf(r.Body.Model != model, at, "body.model", "is %.100q, and was %s before; a batch has one", r.Body.Model, model)
		noteIf(n > maxRequests, at, "", "a batch has at most %d requests", maxRequests)
		seen[id] = true
		return len(all) < maxMistakes && n <= maxRequests
	})
	noteIf(errors.Is(err, bufio.ErrTooLong), nil, "input_file_id", "has a line of more than %dMiB", maxLine>>20)
	noteIf(n == 0, nil, "input_file_id", "has no request, or is gone")
	if len(all) > 0 {
		s.end(ctx, on, b, func(b *batch) { b.move(failed); b.Errors = listOf(all) })
		return
	}
	s.change(ctx, on, b, func(b *batch) { b.Total, b.Model, b.Counts = n, &model, counts{Total: n} })
}

// eachRequest calls f with the lines of the input, if it is there, until f returns false.
// The error is of a line that is too long.
func eachRequest(ctx context.Context, on shelf, b *batch, f func(line int64, text []byte) bool) error {
	from, err := on.store.Objects.Read(ctx, on.content(b.Input), 0, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	check(err)
	defer from.Close()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for number := int64(1); lines.Scan(); number++ {
		check(ctx.Err())
		line := lines.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.Trim(line, " \t\r"); len(line) > 0 && !f(number, line) {
			return nil
		}
	}
	if err := lines.Err(); !errors.Is(err, bufio.ErrTooLong) {
		check(err)
	}
	return lines.Err()
}

// turn reports whether a batch may start, and notes that it does. One of another model
// that came before, or has started, and may use a pool of this one, has its turn first:
// an engine that gives way for a chunk of another model would start anew each time.
func (s *Server) turn(b *batch) (ours bool) {
	s.changing.Lock()
	defer s.changing.Unlock()
	pools := s.Models[*b.Model]
	ours = true
	for id, other := range s.open.Range {
		o := other.(place)
		meet := slices.ContainsFunc(s.Models[o.model], func(pool string) bool { return slices.Contains(pools, pool) })
		ours = ours && (o.model == *b.Model || !meet || !o.started && id.(string) > b.ID)
	}
	s.open.Store(b.ID, place{*b.Model, ours})
	return ours
}

// begin waits until a batch may start.
func (s *Server) begin(ctx context.Context, on shelf, b *batch) {
	switch {
	case b.Status == cancelling, time.Now().Unix() >= b.Expires:
		s.finish(ctx, on, b, expired, nil)
	case s.Models[*b.Model] == nil:
		s.finish(ctx, on, b, failed, fmt.Errorf("the model %s is not served any more; there is %s", *b.Model, s.modelNames()))
	case !s.turn(b):
		s.pause()
	default:
		s.change(ctx, on, b, func(b *batch) { b.Begun = time.Now().Unix() })
	}
}

// follow starts the map once, and sees how far it is.
func (s *Server) follow(ctx context.Context, on shelf, b *batch) {
	h, err := s.Starter.Open(ctx, b.ID)
	switch gone := errors.As(err, new(*starter.NotFoundError)); {
	case gone && (b.Status != validating || time.Since(time.Unix(b.Begun, 0)) > noted): // it must not run again
		err = &starter.RefusedError{Problem: "Temporal no longer knows the map; what it left is in the output file"}
	case gone:
		h, err = s.start(ctx, on, b)
	}
	if errors.As(err, new(*gpumux.InputError)) || errors.As(err, new(*starter.RefusedError)) {
		s.finish(ctx, on, b, failed, err)
		return
	}
	if check(err); b.Results == "" {
		s.Say("batch %s of %s: %d requests to %s, from %s", b.ID, on.owner, b.Total, *b.Model, b.FileName)
		s.change(ctx, on, b, func(b *batch) {
			if b.Results = h.Output; b.Status == validating {
				b.move(inProgress)
			}
		})
	}
	waiting, stop := context.WithTimeout(ctx, look)
	defer stop()
	_, err = h.Wait(waiting)
	if runs := waiting.Err() != nil; !runs {
		how := completed
		if ended, is := errors.AsType[*starter.EndedError](err); is && ended.Status == starter.StatusFailed {
			how = failed
		} else if is {
			how = cancelled
		} else {
			check(err)
		}
		s.finish(ctx, on, b, how, err)
		return
	}
	check(on.read(ctx, b.ID, b))
	switch p, err := h.Progress(ctx); {
	case b.Status == cancelling:
		check(h.Cancel(ctx))
	case err == nil && b.Counts != counts{b.Total, p.Succeeded, p.Failed}: // else the last ones stay
		s.change(ctx, on, b, func(b *batch) { b.Counts = counts{b.Total, p.Succeeded, p.Failed} })
	}
}

func (s *Server) start(ctx context.Context, on shelf, b *batch) (*starter.Handle, error) {
	in := s.Input
	in.Ladder, in.Source, in.Key, in.Arg = s.Models[*b.Model], on.content(b.Input), "custom_id", s.Arg(*b.Model)
	in.FairnessKey, in.MapTimeout = names.FairnessKey(on.owner), gpumux.Duration(max(time.Second, time.Until(time.Unix(b.Expires, 0))))
	label := fmt.Sprintf("%.100s of %s for %s", b.FileName, on.owner, b.Endpoint)
	return s.Starter.Start(ctx, starter.Map{Input: in, ID: b.ID, Label: label})
}

// finish writes the output and error files of the results that there are, and ends the
// batch.
func (s *Server) finish(ctx context.Context, on shelf, b *batch, how string, why error) {
	s.change(ctx, on, b, func(b *batch) {
		if b.Status == inProgress {
			b.move(finalizing)
		}
	})
	if b.Status == cancelling {
		how = cancelled
	} else if how != completed && time.Now().Unix() >= b.Expires {
		how = expired
	}
	draft := func(digit, name string) *draft {
		return on.draft(ctx, newFile(filePrefix+strings.TrimPrefix(b.ID, batchPrefix)+digit, b.ID+"_"+name+".jsonl", "batch_output"))
	}
	good := draft("0", "output")
	defer good.Abort()
	bad := draft("1", "error")
	defer bad.Abort()
	has := s.stored(ctx, on, b, good, bad)
	if slices.Contains(has, false) {
		check(s.unanswered(ctx, on, b, how, has, bad))
	} else if how != cancelled { // all that Temporal forgot is there
		how = completed
	}
	outputs, faults := good.commit(ctx), bad.commit(ctx)
	s.end(ctx, on, b, func(b *batch) {
		b.move(how)
		b.OutputFile, b.ErrorFile, b.Counts = outputs, faults, counts{b.Total, good.lines, bad.lines}
		if how == failed {
			b.Errors = listOf([]mistake{{Code: "map_failed", Message: why.Error()}})
		}
	})
}

// stored writes the rows of the results that a map has stored. It returns whose they are.
func (s *Server) stored(ctx context.Context, on shelf, b *batch, good, bad *draft) (has []bool) {
	has = make([]bool, b.Total)
	if b.Results == "" {
		return has
	}
	lines := on.store.Lines(ctx, b.Results)
	if !must(on.store.Objects.Exists(ctx, b.Results)) {
		lines = must(on.store.Folder(contract.PartsOf(b.Results))).Tail(true).Lines(ctx, nil)
	}
	for line, err := range lines {
		check(err)
		outcome, to := must(results.ParseOutcome(line)), good
		if outcome.Index >= b.Total {
			check(fmt.Errorf("the results %s have item %d of a batch of %d", b.Results, outcome.Index, b.Total))
		}
		if has[outcome.Index] = true; outcome.Kind != "" {
			to = bad
		}
		to.row(must(s.Row(must(results.Plain(line)))))
	}
	return has
}

// unanswered writes a row for each request that has none.
func (s *Server) unanswered(ctx context.Context, on shelf, b *batch, how string, has []bool, to *draft) error {
	at := -1
	return eachRequest(ctx, on, b, func(_ int64, line []byte) bool {
		if at++; at < len(has) && !has[at] {
			why := &gpumux.Fault{Kind: gpumux.FaultKind("batch_" + how), Message: "the batch is " + how + ", and this request was not answered"}
			to.row(must(s.Row(must(results.Append(nil, gpumux.Result{Index: int64(at), Key: text.FieldOf(line, "custom_id"), Fault: why})))))
		}
		return true
	})
}

// end ends a batch, and says what it came to.
func (s *Server) end(ctx context.Context, on shelf, b *batch, set func(*batch)) {
	s.change(ctx, on, b, set)
	reason := ""
	if b.Errors != nil {
		reason = ": " + b.Errors.Data[0].Message
	}
	s.Say("batch %s of %s: %s after %s; %d answered, %d not%s", b.ID, on.owner, b.Status, time.Since(time.Unix(b.Created, 0)).Round(time.Second),
		b.Counts.Completed, b.Counts.Failed, reason)
}
