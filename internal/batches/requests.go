package batches

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/strict"
)

func (s *Server) upload(w http.ResponseWriter, r *http.Request, on shelf) any {
	r.Body = http.MaxBytesReader(w, r.Body, int64(s.MaxFile)+maxBody)
	form, err := r.MultipartReader()
	wrongIf(err != nil, "", "the request is no form: %v", err)
	f := newFile(newID(filePrefix), "", "")
	to := on.draft(r.Context(), f)
	defer to.Abort()
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		}
		wrongIf(err != nil && !errors.As(err, new(*http.MaxBytesError)), "", "the form ends early: %v", err)
		check(err)
		switch name := part.FormName(); name {
		case "purpose":
			f.Purpose = string(must(io.ReadAll(io.LimitReader(part, 100))))
		case "file":
			wrongIf(f.Bytes > 0, "file", "comes twice")
			f.Name, f.Bytes = strings.ToValidUTF8(part.FileName(), "?"), must(io.Copy(to, part))
		default:
			wrongIf(true, "", "%.100q is no field; there are purpose and file", name)
		}
		if f.Bytes > int64(s.MaxFile) {
			check(&http.MaxBytesError{})
		}
	}
	wrongIf(f.Purpose != "batch", "purpose", "is %q; files here are of the purpose batch", f.Purpose)
	wrongIf(f.Bytes == 0, "file", "is missing, or empty")
	to.commit(r.Context())
	return f
}

// one answers with a record of the user's.
func one[T any](prefix string) handler {
	return func(_ http.ResponseWriter, r *http.Request, on shelf) any { return found[T](r, on, prefix) }
}

func found[T any](r *http.Request, on shelf, prefix string) *T {
	record := new(T)
	on.find(r.Context(), prefix, r.PathValue("id"), record)
	return record
}

func content(w http.ResponseWriter, r *http.Request, on shelf) any {
	from, err := on.store.Objects.Read(r.Context(), on.content(found[file](r, on, filePrefix).ID), 0, -1)
	refuseIf(errors.Is(err, fs.ErrNotExist), http.StatusNotFound, "", "the file is being deleted")
	check(err)
	defer from.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(from.Size(), 10)) // which tells when it ends early
	_, _ = io.Copy(w, from)
	return nil
}

func (s *Server) remove(_ http.ResponseWriter, r *http.Request, on shelf) any {
	f := found[file](r, on, filePrefix)
	for id := range s.open.Range {
		b := &batch{}
		if err := on.read(r.Context(), id.(string), b); !errors.Is(err, fs.ErrNotExist) { // else it is another user's
			check(err)
		}
		refuseIf(b.Input == f.ID, http.StatusConflict, "", "%s is the input of %s; cancel that, or wait for its end", f.ID, b.ID)
	}
	check(on.store.Objects.Delete(r.Context(), on.content(f.ID)))
	check(on.store.Objects.Delete(r.Context(), on.key(f.ID)))
	return map[string]any{"id": f.ID, "object": "file", "deleted": true}
}

func listFiles(_ http.ResponseWriter, r *http.Request, on shelf) any {
	purpose := r.FormValue("purpose")
	return page(r, on, filePrefix, 10000, 10000, func(f file) bool { return purpose == "" || f.Purpose == purpose })
}

func listBatches(_ http.ResponseWriter, r *http.Request, on shelf) any {
	return page(r, on, batchPrefix, 20, 100, func(batch) bool { return true })
}

// page is a page of the user's records, the newest first unless the request differs.
func page[T any](r *http.Request, on shelf, prefix string, usual, largest int, wanted func(T) bool) any {
	after, order := r.FormValue("after"), cmp.Or(r.FormValue("order"), "desc")
	limit, err := strconv.Atoi(cmp.Or(r.FormValue("limit"), strconv.Itoa(usual)))
	wrongIf(err != nil || limit < 1 || limit > largest, "limit", "is %.20q; give 1 to %d", r.FormValue("limit"), largest)
	wrongIf(order != "desc" && order != "asc", "order", "is %.20q; give asc or desc", order)
	var ids []string
	for _, name := range must(on.store.Objects.Names(r.Context(), path.Dir(on.key(prefix)))) {
		id, isRecord := strings.CutSuffix(name, recordEnding)
		if isRecord && (after == "" || id != after && id > after == (order == "asc")) {
			ids = append(ids, id)
		}
	}
	if slices.Sort(ids); order == "desc" {
		slices.Reverse(ids)
	}
	all := listOf([]T{})
	read := func(id string) (record T, err error) { return record, on.read(r.Context(), id, &record) }
	for record, err := range objects.Ahead(objects.Abreast, slices.Values(ids), read) {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !wanted(record) { // it was deleted just now
			continue
		}
		check(err)
		if all.More = len(all.Data) == limit; all.More {
			break
		}
		all.Data = append(all.Data, record)
	}
	return all
}

// Endpoints are what the requests of a batch may be for.
var Endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score", "/v1/rerank", "/v2/rerank", "/score",
	"/rerank", "/pooling", "/classify"}

func (s *Server) create(w http.ResponseWriter, r *http.Request, on shelf) any {
	var asked struct {
		Input    string            `json:"input_file_id"`
		Endpoint string            `json:"endpoint"`
		Window   string            `json:"completion_window"`
		Metadata map[string]string `json:"metadata"`
	}
	if m := strict.Decode(must(io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))), &asked); m != nil {
		wrongIf(true, m.Field, "%s", m.Message)
	}
	window, err := time.ParseDuration(asked.Window)
	if days, is := strings.CutSuffix(asked.Window, "d"); is {
		window, err = time.ParseDuration(days + "h")
		window *= 24
	}
	wrongIf(err != nil || window < time.Second || window > 9000*time.Hour, "completion_window",
		"is %.20q; give 24h, or another time from 1s to 375d, such as 90m or 7d", asked.Window)
	wrongIf(!slices.Contains(Endpoints, asked.Endpoint), "endpoint", "is %.100q; give one of %s", asked.Endpoint, strings.Join(Endpoints, ", "))
	f, now := &file{}, time.Now()
	on.find(r.Context(), filePrefix, asked.Input, f)
	wrongIf(f.Purpose != "batch", "input_file_id", "is a file that a batch wrote; give one of the purpose batch")
	b := &batch{ID: newID(batchPrefix), Object: "batch", Endpoint: asked.Endpoint, Input: f.ID, Window: asked.Window, Status: validating,
		Created: now.Unix(), Expires: now.Add(window).Unix(), Metadata: asked.Metadata, FileName: f.Name, Rest: map[string]jsontext.Value{}}
	for _, status := range []string{inProgress, finalizing, completed, failed, expired, cancelling, cancelled} {
		b.Rest[status+"_at"] = jsontext.Value("null")
	}
	on.write(context.WithoutCancel(r.Context()), b.ID, b) // a client that leaves finds it in the list
	s.carry(on, b)
	return b
}

func (s *Server) cancel(_ http.ResponseWriter, r *http.Request, on shelf) any {
	b := found[batch](r, on, batchPrefix)
	s.change(r.Context(), on, b, func(b *batch) {
		if b.Status == validating || b.Status == inProgress {
			b.move(cancelling)
		}
	})
	refuseIf(b.Status != cancelling && b.Status != cancelled, http.StatusConflict, "", "%s is %s, and cannot be cancelled any more", b.ID, b.Status)
	return b
}
