package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/starter"
)

// localState is what `gpumux local` says of one folder of a local map.
type localState struct {
	ID string `json:"id"`
	// State is running, interrupted (its command goes on with it), kept (its results were written; --id keeps it) or half
	// removed (of no use any more).
	State string `json:"state"`
	// Folder is where the command was given, and Command its arguments; empty for a folder that lost its note.
	Folder  string   `json:"folder,omitempty"`
	Command []string `json:"command,omitempty"`
	// Fingerprint tells what is mapped over what; see starter.Fingerprint. Output is the key of the results file in the store.
	Fingerprint string `json:"fingerprint,omitempty"`
	Output      string `json:"output,omitempty"`
	Bytes       int64  `json:"bytes"`
	// Used is when something in it last changed.
	Used time.Time `json:"used"`
	Path string    `json:"path"`
}

// noteFile is the file of a local map's folder that says how to go on with it.
const noteFile = "map.json"

// note writes how to go on with the map of this folder. The map runs without it.
func (s *session) note(h *starter.Handle, fingerprint string) {
	dir, err := os.Getwd()
	if err == nil {
		var data []byte
		noted := localState{ID: h.ID, Folder: dir, Command: append([]string{"gpumux"}, s.app.Args...), Fingerprint: fingerprint, Output: h.Output}
		if data, err = json.Marshal(noted); err == nil {
			err = os.WriteFile(filepath.Join(s.data, noteFile), data, 0o600)
		}
	}
	if err != nil {
		s.app.console.say("note the command in %s: %v; `gpumux local` will not show it", s.data, err)
	}
}

func (a *app) localCommand() *cobra.Command {
	var remove, all, asJSON bool
	c := &cobra.Command{
		Use:   "local [--remove ID... | --remove --all]",
		Short: "List what `map --local` left to go on with, or remove it",
		Long: `List the maps that commands with --local left to go on with, and those that --id keeps: where each command
was given, so that the same command goes on, and how much disk it takes. With --remove delete the state of
those named; finished items of theirs that were not written are lost. Maps with a --data folder of their own
are not among them.`,
		Example: "  gpumux local\n  gpumux local --remove map-0123456789ab\n  gpumux local --remove --all",
	}
	c.Flags().BoolVar(&remove, "remove", false, "delete the state of the maps named")
	c.Flags().BoolVar(&all, "all", false, "with --remove: of every map that does not run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = ran(func(c *cobra.Command, ids []string) error {
		switch {
		case !remove && (all || len(ids) > 0):
			return usage("give --remove with it; `gpumux local` alone lists")
		case remove && all == (len(ids) > 0):
			return usage("--remove: give the IDs of maps as `gpumux local` lists them, or --all")
		}
		root, err := stateFolder("local")
		if err != nil {
			return err
		}
		states, err := localStates(root)
		if err != nil {
			return unavailableError{err}
		}
		if remove {
			return a.removeLocal(states, ids)
		}
		if asJSON {
			return printJSON(a.Stdout, states)
		}
		if len(states) == 0 {
			a.console.say("no local map has anything left in %s", root)
			return nil
		}
		return printLocal(a.Stdout, states, time.Now())
	})
	return c
}

// localStates reads the folders of local maps, the last used first.
func localStates(root string) ([]localState, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list local maps: %w", err)
	}
	states := []localState{}
	for _, entry := range entries {
		if entry.IsDir() {
			states = append(states, localStateOf(filepath.Join(root, entry.Name())))
		}
	}
	slices.SortFunc(states, func(a, b localState) int { return b.Used.Compare(a.Used) })
	return states, nil
}

func localStateOf(path string) localState {
	s := localState{}
	if data, err := os.ReadFile(filepath.Join(path, noteFile)); err == nil {
		_ = json.Unmarshal(data, &s) // half a note counts as none
	}
	s.ID, s.Path, s.State = filepath.Base(path), path, "interrupted"
	if strings.HasSuffix(s.ID, removedSuffix) {
		s.State = "half removed"
	}
	if _, err := os.Stat(filepath.Join(path, "delivered", s.ID)); err == nil {
		s.State = "kept"
	}
	if held(path) {
		s.State = "running"
	}
	// What cannot be read, or is gone by now, does not count.
	_ = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			if info.Mode().IsRegular() {
				s.Bytes += info.Size()
			}
			if info.ModTime().After(s.Used) {
				s.Used = info.ModTime()
			}
		}
		return nil
	})
	return s
}

// held reports whether a command uses the folder now.
func held(data string) bool {
	file, err := os.Open(filepath.Join(data, lockFile))
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// removeLocal deletes the folders of the maps named, or of all that do not run. It deletes none when one of them cannot go.
func (a *app) removeLocal(states []localState, ids []string) error {
	var m mistakes
	var gone []localState
	for _, id := range ids {
		switch at := slices.IndexFunc(states, func(s localState) bool { return s.ID == id }); {
		case at < 0:
			m.add("--remove %s: there is no such local map; `gpumux local` lists them", id)
		case states[at].State == "running":
			m.add("--remove %s: it runs; stop its command first", id)
		default:
			gone = append(gone, states[at])
		}
	}
	if err := m.err(); err != nil {
		return err
	}
	if len(ids) == 0 {
		gone = slices.DeleteFunc(states, func(s localState) bool { return s.State == "running" })
	}
	var bytes int64
	for _, s := range gone {
		hold, err := holdFolder(s.Path, s.ID)
		if err != nil {
			return unavailableError{err}
		}
		err = removeFolder(s.Path)
		hold.release()
		if err != nil {
			return unavailableError{fmt.Errorf("remove local map %s: %w", s.ID, err)}
		}
		bytes += s.Bytes
	}
	a.console.say("removed %d local maps, %s", len(gone), humanize.IBytes(uint64(bytes)))
	return nil
}

// printLocal writes a row per folder.
func printLocal(to io.Writer, states []localState, now time.Time) error {
	rows := [][]string{{"ID", "STATE", "SIZE", "USED", "FOLDER", "COMMAND"}}
	for _, s := range states {
		rows = append(rows, []string{s.ID, s.State, humanize.IBytes(uint64(s.Bytes)), ago(now, s.Used), orDash(s.Folder),
			orDash(shellLine(s.Command))})
	}
	return table(to, rows)
}

// shellLine is a command as a shell takes it.
func shellLine(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// plain are the characters that no shell takes for anything else.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%"
