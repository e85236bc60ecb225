package workers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// The variables in which a process finds the argument of its map: its text, or a file
// where that is larger than a variable may be.
const argText, argFile = "GPUMUX_ARG", "GPUMUX_ARG_FILE"

type argFiles struct {
	store *store.Store

	mu sync.Mutex
	// dir has a file for each. Empty: there is none yet.
	dir string
	// from is the object in the store that was read last, and arg its text: all calls of a
	// map have one. written is the argument whose file is at path.
	from, path   string
	arg, written json.RawMessage
}

func (a *argFiles) set(ctx context.Context, env map[string]string, call calls.Call) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	arg := call.Arg
	if call.ArgFile != "" {
		if err := a.read(ctx, call.ArgFile); err != nil {
			return err
		}
		arg = a.arg
	}
	if len(arg) <= gpumux.MaxArg {
		env[argText] = string(arg)
		return nil
	}
	if err := a.write(arg); err != nil {
		return fmt.Errorf("write the argument for tasks: %w", err)
	}
	env[argFile] = a.path
	return nil
}

// read reads an object of the store. One that can never be an argument is a
// *gpumux.Fault.
func (a *argFiles) read(ctx context.Context, name string) error {
	if a.from == name {
		return nil
	}
	size, err := a.store.Objects.Size(ctx, name)
	var text []byte
	if err == nil && size <= gpumux.MaxArgFile {
		text, err = a.store.Objects.ReadAll(ctx, name)
	}
	wrong := ""
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*objects.NameError)) || errors.As(err, new(*objects.DamageError)):
		wrong = err.Error()
	case err != nil:
		return fmt.Errorf("argFile: %w", err)
	case size > gpumux.MaxArgFile:
		wrong = fmt.Sprintf("%s has %s, more than %s", name, gpumux.Size(size), gpumux.Size(gpumux.MaxArgFile))
	case !json.Valid(text):
		wrong = name + " is not JSON"
	}
	if wrong != "" {
		return &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: "argFile: " + wrong, Hint: "put one JSON value there, or start the map anew"}
	}
	a.from, a.arg = name, bytes.TrimSpace(text)
	return nil
}

func (a *argFiles) write(arg []byte) (err error) {
	if a.dir == "" {
		if a.dir, err = os.MkdirTemp("", "gpumux-arg-"); err != nil {
			return err
		}
	}
	if !bytes.Equal(arg, a.written) {
		sum := sha256.Sum256(arg)
		a.path, a.written = filepath.Join(a.dir, hex.EncodeToString(sum[:16])+".json"), arg
	}
	if _, err := os.Stat(a.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = os.WriteFile(a.path, arg, 0o400); err != nil {
		_ = os.Remove(a.path) // half of it
	}
	return err
}

// remove removes the files: no process reads them any more.
func (a *argFiles) remove() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return os.RemoveAll(a.dir)
}
