// Package batches serves OpenAI's Files and Batches. Each batch is a map of a task that
// asks a language model.
//
// It owns the records of files and batches in the store, who sees which, and the steps of
// open batches, which may all be repeated. It never asks a model, and knows nothing that
// the store and Temporal do not: after a kill the next server goes on. Serve returns when
// its context ends; running maps go on.
package batches

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
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
