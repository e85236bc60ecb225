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

	mu sync.Mutex
	// dir has what is written here. Empty: there is none yet.
	dir string
	// known has arguments by the object, or the hash of the text, that they come from.
	known map[string]*argument
}

// argument is a text, or a file with the number of calls that use it.
type argument struct {
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
	a.mu.Lock()
	defer a.mu.Unlock()
	arg := a.known[name]
	if arg == nil {
		if arg, err = a.find(ctx, name, call); err != nil {
			return nil, err
		}
		if a.known == nil {
			a.known = map[string]*argument{}
		}
		a.known[name] = arg
	}
	if arg.path == "" {
		env[argText] = arg.text
	} else {
		env[argFile] = arg.path
	}
	arg.calls++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		arg.calls--
		arg.used = time.Now()
	}, nil
}

// find returns an argument. One that can never be one is a *gpumux.Fault.
func (a *argFiles) find(ctx context.Context, name string, call calls.Call) (*argument, error) {
	if call.ArgFile == "" {
		return a.write(name, bytes.NewReader(call.Arg))
	}
	if a.store == nil {
		return &argument{path: name}, nil
	}
	arg, wrong, err := a.read(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*objects.NameError)) || errors.As(err, new(*objects.DamageError)):
		wrong = err.Error()
	case err != nil:
		return nil, fmt.Errorf("argFile: %w", err)
	}
	if wrong != "" {
		return nil, &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: "argFile: " + wrong, Hint: "put one JSON value there, or start the map anew"}
	}
	return arg, nil
}

// read reads an object: JSON, or what a client in Python wrote with arrays in it. Of that
// a store on a disk has the file already.
func (a *argFiles) read(ctx context.Context, name string) (arg *argument, wrong string, err error) {
	object, err := a.store.Objects.Read(ctx, name, 0, -1)
	if err != nil {
		return nil, "", err
	}
	defer object.Close()
	from := bufio.NewReader(object)
	head, err := from.Peek(len(names.ArraysHead))
	switch {
	case err == nil && string(head) == names.ArraysHead:
		if path := a.store.Objects.File(name); path != "" {
			return &argument{path: path}, "", nil
		}
		arg, err = a.write(name, from)
		return arg, "", err
	case object.Size() > gpumux.MaxArgFile:
		return nil, fmt.Sprintf("%s has %s, more than %s", name, gpumux.Size(object.Size()), gpumux.Size(gpumux.MaxArgFile)), nil
	}
	text, err := io.ReadAll(from)
	switch text = bytes.TrimSpace(text); {
	case err != nil:
	case !json.Valid(text):
		wrong = name + " is not JSON"
	case len(text) <= gpumux.MaxArg:
		arg = &argument{text: string(text)}
	default:
		arg, err = a.write(name, bytes.NewReader(text))
	}
	return arg, wrong, err
}

// write makes a file, and removes those that nobody has used for long.
func (a *argFiles) write(name string, from io.Reader) (_ *argument, err error) {
	for each, arg := range a.known {
		if arg.calls == 0 && time.Since(arg.used) > argKept {
			delete(a.known, each)
			if filepath.Dir(arg.path) == a.dir {
				_ = os.Remove(arg.path)
			}
		}
	}
	if a.dir == "" {
		if a.dir, err = os.MkdirTemp("", "gpumux-arg-"); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(name))
	// A process with another name of the file would be another process.
	arg := &argument{path: filepath.Join(a.dir, hex.EncodeToString(sum[:16]))}
	file, err := os.OpenFile(arg.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o400)
	if err == nil {
		_, err = io.Copy(file, from)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		_ = os.Remove(arg.path) // half of it
		return nil, fmt.Errorf("write the argument for tasks: %w", err)
	}
	return arg, nil
}

// remove removes the files: no process reads them any more.
func (a *argFiles) remove() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return os.RemoveAll(a.dir)
}
