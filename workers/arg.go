package workers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// The variables in which a process finds the argument of its map: its text, or a file
// where that is larger than a variable may be.
const argText, argFile = "GPUMUX_ARG", "GPUMUX_ARG_FILE"

// argKept is how long a file stays that no call uses.
const argKept = 10 * time.Minute

type argFiles struct {
	// store is nil where arguments lie in files of this host.
	store *store.Store

	mu sync.Mutex // guards what follows, and the calls of arguments
	// dir has what is written here. Empty: there is none yet.
	dir string
	// known has arguments by the object, or the hash of the text, that they come from.
	known map[string]*argument
}

// argument is a text, or a file. calls is how many use it, used when the last one ended.
type argument struct {
	mu         sync.Mutex // held while it is fetched
	text, path string
	calls      int
	used       time.Time
}

// set gives a call's argument to its processes. The file is there until done is called.
func (a *argFiles) set(ctx context.Context, env map[string]string, call calls.Call) (done func(), err error) {
	name := call.ArgFile
	if name == "" && len(call.Arg) <= gpumux.MaxArg {
		env[argText] = string(call.Arg)
		return func() {}, nil
	} else if name == "" {
		sum := sha256.Sum256(call.Arg)
		name = hex.EncodeToString(sum[:])
	}
	arg, done := a.use(name)
	arg.mu.Lock()
	defer arg.mu.Unlock()
	if arg.text == "" && arg.path == "" {
		if err := a.find(ctx, arg, name, call); err != nil {
			done()
			return nil, err
		}
	}
	if arg.path == "" {
		env[argText] = arg.text
	} else {
		env[argFile] = arg.path
	}
	return done, nil
}

func (a *argFiles) use(name string) (arg *argument, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[string]*argument{}
	}
	if arg = a.known[name]; arg == nil {
		arg = &argument{}
		a.known[name] = arg
	}
	arg.calls++
	return arg, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		arg.calls--
		arg.used = time.Now()
	}
}

// find fetches an argument. One that can never be one is a *gpumux.Fault.
func (a *argFiles) find(ctx context.Context, arg *argument, name string, call calls.Call) error {
	if call.ArgFile == "" {
		return a.write(arg, name, bytes.NewReader(call.Arg))
	}
	if a.store == nil {
		arg.path = name
		return nil
	}
	wrong, err := a.read(ctx, arg, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*objects.NameError)) || errors.As(err, new(*objects.DamageError)):
		wrong = err.Error()
	case err != nil:
		return fmt.Errorf("argFile: %w", err)
	}
	if wrong != "" {
		return &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: "argFile: " + wrong, Hint: "put one JSON value there, or start the map anew"}
	}
	return nil
}

// read reads an object: JSON, or what a client in Python wrote with arrays in it. Of that
// a store on a disk has the file already.
func (a *argFiles) read(ctx context.Context, arg *argument, name string) (wrong string, err error) {
	object, err := a.store.Objects.Read(ctx, name, 0, -1)
	if err != nil {
		return "", err
	}
	defer object.Close()
	from := bufio.NewReader(object)
	head, err := from.Peek(len(names.ArraysHead))
	switch {
	case err == nil && string(head) == names.ArraysHead:
		if arg.path = a.store.Objects.File(name); arg.path != "" {
			return "", nil
		}
		return "", a.write(arg, name, from)
	case object.Size() > gpumux.MaxArgFile:
		return fmt.Sprintf("%s has %s, more than %s", name, gpumux.Size(object.Size()), gpumux.Size(gpumux.MaxArgFile)), nil
	}
	text, err := io.ReadAll(from)
	switch text = bytes.TrimSpace(text); {
	case err != nil:
		return "", err
	case !json.Valid(text):
		return name + " is not JSON", nil
	case len(text) <= gpumux.MaxArg:
		arg.text = string(text)
		return "", nil
	}
	return "", a.write(arg, name, bytes.NewReader(text))
}

// write makes the file of an argument, and removes those that nobody has used for long.
func (a *argFiles) write(arg *argument, name string, from io.Reader) (err error) {
	a.mu.Lock()
	for each, old := range a.known {
		if old.calls == 0 && time.Since(old.used) > argKept {
			delete(a.known, each)
			if filepath.Dir(old.path) == a.dir {
				_ = os.Remove(old.path)
			}
		}
	}
	if a.dir == "" {
		a.dir, err = os.MkdirTemp("", "gpumux-arg-")
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	// The same argument has the same path, so that its processes are used again.
	sum := sha256.Sum256([]byte(name))
	path := filepath.Join(a.dir, hex.EncodeToString(sum[:16]))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o400)
	if err == nil {
		_, err = io.Copy(file, from)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		_ = os.Remove(path) // half of it
		return fmt.Errorf("write the argument for tasks: %w", err)
	}
	arg.path = path
	return nil
}

// remove removes the files: no process reads them any more.
func (a *argFiles) remove() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return os.RemoveAll(a.dir)
}
