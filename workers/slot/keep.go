package slot

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// folderOf is where the process may leave files of its items. It is empty where there can be none.
func (s *Slot) folderOf(p *occupant) string {
	if p.folder == "" && !p.unplaced {
		folder, err := s.makeFolder(p)
		if err != nil {
			s.log.Warn("items of a task process can keep no files", zap.String(logkey.Task, p.Task.Name), zap.String(logkey.Why, err.Error()))
		}
		p.folder, p.unplaced = folder, err != nil
	}
	return p.folder
}

// makeFolder makes a folder that the process may write to, below one of the slot that the sweeper removes if nobody else does.
func (s *Slot) makeFolder(p *occupant) (string, error) {
	if s.scratch == "" {
		scratch, err := os.MkdirTemp("", "gpumux-files-")
		if err != nil {
			return "", err
		}
		s.scratch = scratch
		if err := process.Sweep(s.log, scratch); err != nil {
			return "", err
		}
		if err := os.Chmod(scratch, 0o711); err != nil { // tasks may run as another user
			return "", err
		}
	}
	folder := filepath.Join(s.scratch, strconv.Itoa(p.PID))
	err := os.Mkdir(folder, 0o700)
	if err == nil && p.Task.User != nil {
		err = os.Lchown(folder, int(p.Task.User.UID), int(p.Task.User.GID))
	}
	if err != nil {
		return "", err // the slot's folder goes as a whole
	}
	return folder, nil
}

// removeFolder removes what the process, which is gone, has left.
func (s *Slot) removeFolder(p *occupant) {
	if p.folder == "" {
		return
	}
	if err := os.RemoveAll(p.folder); err != nil {
		s.log.Warn("files of a task process could not be removed", zap.String(logkey.Why, err.Error()))
	}
}

// keepFiles hands on the files of the item that was answered. On an error the process is gone.
func (s *Slot) keepFiles(p *occupant, f *flow, m wire.Results) error {
	if len(m.Files) == 0 {
		return nil
	}
	item := fmt.Sprintf("%d-%d", m.Run, m.N)
	if p.folder == "" || f.call.Keep == nil {
		return s.fail(p, diagnosis.Broken("item %s has files, and was given no folder for them", item), "")
	}
	defer os.RemoveAll(filepath.Join(p.folder, item))
	// The process may have put links there, which must not lead outside.
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return s.fail(p, diagnosis.Broken("the files of item %s: %v", item, err), "")
	}
	defer root.Close()
	for _, name := range m.Files {
		file, err := openFile(root, filepath.Join(item, name), p.Task.User)
		if err != nil {
			return s.fail(p, diagnosis.Broken("the file %s of item %s: %v", name, item, err), "")
		}
		err = f.call.Keep(f.ctx, f.flight[0].Index, name, file)
		file.Close()
		if err != nil {
			s.kill("its call ended while files were stored")
			return err
		}
	}
	return s.endLapsed(f.call)
}

// openFile opens a file and nothing else, such as a pipe, whose opening would wait. One of another user than the task's may be a link to
// what the task must not read.
func openFile(root *os.Root, name string, owner *process.User) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("it is no file: %s", info.Mode())
	case owner != nil && info.Sys().(*syscall.Stat_t).Uid != owner.UID:
		err = fmt.Errorf("it is not the file of user %s", owner.Name)
	case info.Size() > names.MaxFileBytes:
		err = fmt.Errorf("it has %s; at most %s are allowed", gpumux.Size(info.Size()), gpumux.Size(names.MaxFileBytes))
	default:
		return file, nil
	}
	file.Close()
	return nil, err
}
