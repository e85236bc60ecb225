package activities

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/gpumux/gpumux/activities/record"
)

// keeper is keep where items may leave files: their map has a folder, and its results file names them.
func (a *attempt) keeper() func(context.Context, int64, string, *os.File) error {
	if a.chunk.Parts == "" || a.chunk.Inline {
		return nil
	}
	return a.keep
}

// keep stores a file of an item, however often that takes: a store that is full or away holds up the item. The error is why ctx
// ended. Heartbeats go on meanwhile, and say what it waits for.
func (a *attempt) keep(ctx context.Context, index int64, name string, file *os.File) error {
	defer a.unkept.Store(nil)
	for delay := record.FirstRetry; ; delay = min(2*delay, record.LastRetry) {
		err := a.storeFile(ctx, index, name, file)
		if err == nil {
			return nil
		}
		a.unkept.Store(&err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *attempt) storeFile(ctx context.Context, index int64, name string, file *os.File) error {
	info, err := file.Stat()
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	folder, err := a.Store.Folder(a.chunk.Parts)
	if err != nil {
		return err
	}
	return folder.KeepFile(ctx, index, name, file, info.Size())
}
