package slot

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/process"
)

type scratch struct {
	log *zap.Logger
	dir string // empty until a process may leave files
}

func (s *scratch) folder(p *occupant) string {
	if p.folder == "" && !p.unplaced {
		folder, err := s.makeFolder(p)
		if err != nil {
			s.log.Warn("items of a task process can keep no files", zap.String("task", p.session.Task.Name), zap.String("why", err.Error()))
		}
		p.folder, p.unplaced = folder, err != nil
	}
	return p.folder
}

// makeFolder makes a folder that the process may write to. It lies in the slot's folder,
// which the sweeper removes if nobody else does.
func (s *scratch) makeFolder(p *occupant) (string, error) {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "gpumux-files-")
		if err != nil {
			return "", err
		}
		s.dir = dir
		if err := process.Sweep(dir); err != nil {
			return "", err
		}
	}
	folder := filepath.Join(s.dir, strconv.Itoa(p.session.Process.PID))
	if p.session.Task.Python != "" {
		return folder, nil // the runtime makes it with the first file
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err // the end of the slot deletes all of the slot's folder
	}
	return folder, nil
}

func (s *scratch) removeFolder(p *occupant) {
	if err := os.RemoveAll(p.folder); err != nil {
		s.log.Warn("files of a task process could not be removed", zap.String("why", err.Error()))
	}
}

// openFile opens a regular file; the opening of a pipe would wait.
func openFile(root *os.Root, name string) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("it is no file: %s", info.Mode())
	case info.Size() > names.MaxFileBytes:
		err = fmt.Errorf("it has %s; at most %s are allowed", gpumux.Size(info.Size()), gpumux.Size(names.MaxFileBytes))
	default:
		return file, nil
	}
	file.Close()
	return nil, err
}

// eachFile opens the files that an item left in its folder, and removes the folder.
func eachFile(folder, item string, names []string, keep func(name string, file *os.File) error) error {
	defer os.RemoveAll(filepath.Join(folder, item))
	// The process may have put links there, which must not lead outside.
	root, err := os.OpenRoot(folder)
	if err != nil {
		return broken("the files of item %s: %v", item, err)
	}
	defer root.Close()
	for _, name := range names {
		file, err := openFile(root, filepath.Join(item, name))
		if err != nil {
			return broken("the file %s of item %s: %v", name, item, err)
		}
		err = keep(name, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
