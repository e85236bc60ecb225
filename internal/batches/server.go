// Package batches serves OpenAI's Files and Batches. Each batch is a map of a task that
// asks a language model.
//
// It owns the records of files and batches in the store, who sees which, and the steps of
// open batches, which may all be repeated. It never asks a model, and knows nothing that
// the store and Temporal do not: after a kill the next server goes on. Serve returns when
// its context ends; running maps go on.
package batches

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/strict"
	"github.com/gpumux/gpumux/starter"
)

// Server is made of its exported fields.
type Server struct {
	Starter *starter.Starter
	// Models are what requests may name, with the pools of their maps. Arg makes the
	// argument of a map from one.
	Models map[string][]string
	Arg    func(model string) []byte
	// Row makes of a result a line of a batch's output.
	Row func(result []byte) ([]byte, error)
	// Input has the task of the maps and what else all have.
	Input   gpumux.MapInput
	MaxFile gpumux.Size
	// Keys has the name of the user for the hash of a key. Default: all requests are of one.
	Keys map[[sha256.Size]byte]string
	// Say gets a line when a batch begins and ends, and where one is held up.
	Say func(format string, args ...any)

	ctx      context.Context // of the steps of batches
	keepers  sync.WaitGroup
	open     sync.Map   // the place of each open batch by its ID
	changing sync.Mutex // held while a record is changed
	reading  sync.Mutex // held while an input is checked, which takes memory
}

func (s *Server) modelNames() string { return strings.Join(slices.Sorted(maps.Keys(s.Models)), ", ") }

const (
	// lastGrace is the time for requests that are under way when the server ends.
	lastGrace = 2 * time.Second
	// maxBody is the most bytes of a request beside a file.
	maxBody = 1 << 20
	// everybody owns what is asked for without keys, which have at least shortestKey bytes.
	everybody, shortestKey = "everybody", 16
)

// Serve answers requests until ctx ends. It is called once.
func (s *Server) Serve(ctx context.Context, on net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	s.ctx = ctx
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	s.keepers.Go(func() { s.keep("the batches in the store", s.takeUp) })
	s.keepers.Go(func() {
		<-ctx.Done()
		grace, end := context.WithTimeout(context.WithoutCancel(ctx), lastGrace)
		defer end()
		_ = errors.Join(web.Shutdown(grace), web.Close())
	})
	err := web.Serve(on)
	stop()
	s.keepers.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// failure is the panic of check, with which an error ends a request or a step of a batch.
// None leaves the package: try makes it an error again.
type failure struct{ error }

func try(do func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(failure).error // what is no failure goes on
		}
	}()
	do()
	return nil
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// handler returns what is sent as JSON, or nil where it has answered.
type handler func(w http.ResponseWriter, r *http.Request, on shelf) (reply any)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]handler{
		"POST /v1/files": s.upload, "GET /v1/files": listFiles, "GET /v1/files/{id}": one[file](filePrefix),
		"GET /v1/files/{id}/content": content, "DELETE /v1/files/{id}": s.remove, "POST /v1/batches": s.create,
		"GET /v1/batches": listBatches, "GET /v1/batches/{id}": one[batch](batchPrefix), "POST /v1/batches/{id}/cancel": s.cancel,
		"/": func(_ http.ResponseWriter, r *http.Request, _ shelf) any {
			refuseIf(true, http.StatusNotFound, "", "there is no %s %s; here are /v1/files and /v1/batches", r.Method, r.URL.Path)
			return nil
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			var reply any
			err := try(func() {
				owner := s.admit(r)
				reply = answer(w, r, shelf{must(s.Starter.UseStore(r.Context())), owner})
			})
			s.respond(w, reply, err)
		})
	}
	return mux
}

// respond answers in OpenAI's form, unless the answer was given already.
func (s *Server) respond(w http.ResponseWriter, reply any, err error) {
	why, kind := &refusal{status: http.StatusOK}, "invalid_request_error"
	if errors.As(err, new(*http.MaxBytesError)) {
		why = &refusal{http.StatusRequestEntityTooLarge, "", fmt.Sprintf("it has more than %s (--max-file), or without a file more than 1MiB", s.MaxFile)}
	} else if err != nil && !errors.As(err, &why) {
		why, kind = &refusal{http.StatusServiceUnavailable, "", err.Error()}, "server_error"
	}
	if err != nil {
		code := map[int]string{http.StatusUnauthorized: "invalid_api_key", http.StatusNotFound: "not_found"}[why.status]
		reply = map[string]any{"error": map[string]string{"message": why.message, "type": kind, "param": why.param, "code": code}}
	}
	if why.status == http.StatusConflict {
		w.Header().Set("X-Should-Retry", "false") // or OpenAI's clients try again
	}
	if reply != nil {
		data, _ := json.Marshal(reply, jsontext.AllowInvalidUTF8(true)) // so it always encodes
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(why.status)
		_, _ = w.Write(data) // or its reader has gone
	}
}

// refusal is the error of a request for what cannot be.
type refusal struct {
	status         int
	param, message string
}

func (r *refusal) Error() string { return r.message }

// refuseIf ends a request for what cannot be. The text goes on behind a field's name.
func refuseIf(is bool, status int, param, format string, args ...any) {
	if is {
		check(&refusal{status, param, strings.TrimSpace(param + " " + fmt.Sprintf(format, args...))})
	}
}

func wrongIf(is bool, param, format string, args ...any) {
	refuseIf(is, http.StatusBadRequest, param, format, args...)
}

// ReadKeys reads a file of lines NAME KEY.
func (s *Server) ReadKeys(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o007 != 0 {
		return fmt.Errorf("%s is open to every user of this machine; chmod 600 it, and give new keys if others have read it", file)
	}
	s.Keys = map[[sha256.Size]byte]string{}
	known, number := map[string]bool{}, 0
	for line := range strings.Lines(string(data)) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 || len(words[1]) < shortestKey || names.File(words[0]) != nil || known[strings.ToLower(words[0])] || known[words[1]] {
			return fmt.Errorf("%s:%d: write NAME KEY, each once; NAME is one for a file, and KEY has at least %d characters, as from `openssl rand -hex 24`",
				file, number, shortestKey)
		}
		known[strings.ToLower(words[0])], known[words[1]], s.Keys[sha256.Sum256([]byte(words[1]))] = true, true, words[0]
	}
	return nil
}

// admit says whose request it is. Pages in a browser get nothing, also where a name of
// theirs leads here.
func (s *Server) admit(r *http.Request) (owner string) {
	page := http.NewCrossOriginProtection().Check(r) != nil || s.Keys == nil && !names.Loopback(r.Host)
	refuseIf(page, http.StatusForbidden, "", "%.100q is no address of this machine, or a web page asks; use 127.0.0.1", r.Host)
	if s.Keys == nil {
		return everybody
	}
	// That a hash is looked up tells nothing about keys by the time that it takes.
	owner = s.Keys[sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))]
	refuseIf(owner == "", http.StatusUnauthorized, "", "the API key is unknown here; ask for one who runs this server")
	return owner
}

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
