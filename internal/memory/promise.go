package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// Promises is the folder in which the workers and local maps of a user tell each other
// the budgets of their slots.
func Promises() string { return filepath.Join(os.TempDir(), fmt.Sprintf("gpumux-%d", os.Getuid())) }

// Promise writes the budgets on each GPU into files of the folder, locked until release.
// It warns where they do not fit beside those of other live processes. Without a usable
// folder it does nothing.
func (e *Enforcer) Promise(folder string) (release func()) {
	kept := map[string]*os.File{}
	wanted := budgets(e.placements)
	for _, d := range config.Devices(e.placements) {
		if d.Kind == gpu.KindCPU || wanted[d.UUID] == 0 {
			continue
		}
		begin := filepath.Join(folder, strings.ReplaceAll(d.UUID, "/", "_"))
		name, file, err := promise(folder, begin, wanted[d.UUID])
		if err != nil {
			e.log.Debug("other gpumux processes do not learn of the budgets here", zap.Error(err))
			break
		}
		kept[name] = file
		all, who := promised(begin, name)
		if len(who) > 0 && d.Memory > 0 && uint64(all+wanted[d.UUID]) > d.Available() {
			e.log.Warn(fmt.Sprintf("the budgets on it are %s in all, and those of other gpumux processes of this user (%s) %s: together more than its %s",
				wanted[d.UUID], strings.Join(who, ", "), all, gpumux.Size(d.Available())), zap.String("device", d.UUID),
				zap.String("why", "items may run out of device memory while others hold theirs; end one, or lower memory or slots"))
		}
	}
	return func() {
		for name, file := range kept {
			_ = os.Remove(name)
			_ = file.Close()
		}
	}
}

// promise makes a locked file; nobody sees it unlocked.
func promise(folder, begin string, budget gpumux.Size) (name string, file *os.File, err error) {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, err
	}
	file, err = os.CreateTemp(folder, ".new")
	if err != nil {
		return "", nil, err
	}
	name = fmt.Sprintf("%s.%d%s", begin, os.Getpid(), filepath.Ext(file.Name()))
	_, err = fmt.Fprintf(file, "%d", int64(budget))
	if err = errors.Join(err, unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), os.Rename(file.Name(), name)); err != nil {
		return "", nil, errors.Join(err, os.Remove(file.Name()), file.Close())
	}
	return name, file, nil
}

// promised adds up what other live processes promise, and removes what dead ones left.
func promised(begin, own string) (all gpumux.Size, who []string) {
	files, _ := filepath.Glob(begin + ".*")
	for _, name := range files {
		file, err := os.Open(name)
		if name == own || err != nil {
			continue
		}
		var budget int64
		_, err = fmt.Fscan(file, &budget)
		if lock := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); lock == nil {
			_ = os.Remove(name)
		} else if err == nil {
			pid, _, _ := strings.Cut(strings.TrimPrefix(name, begin+"."), ".")
			if _, err := strconv.Atoi(pid); err == nil {
				all, who = all+gpumux.Size(budget), append(who, "process "+pid)
			}
		}
		_ = file.Close()
	}
	return all, who
}
