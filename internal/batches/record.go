package batches

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/text"
)

// What a batch is. The last four are its ends.
const (
	validating, inProgress, finalizing, cancelling = "validating", "in_progress", "finalizing", "cancelling"
	completed, failed, expired, cancelled          = "completed", "failed", "expired", "cancelled"
)

// file is OpenAI's object of a file. Its bytes lie beside it.
type file struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Bytes   int64  `json:"bytes"`
	Created int64  `json:"created_at"`
	Name    string `json:"filename"`
	Purpose string `json:"purpose"`
	Status  string `json:"status"`
}

func newFile(id, name, purpose string) *file {
	return &file{ID: id, Object: "file", Created: time.Now().Unix(), Name: name, Purpose: purpose, Status: "processed"}
}

// batch is OpenAI's object of a batch, and what else is kept of one.
type batch struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Endpoint   string            `json:"endpoint"`
	Model      *string           `json:"model"`
	Errors     *list[mistake]    `json:"errors"`
	Input      string            `json:"input_file_id"`
	Window     string            `json:"completion_window"`
	Status     string            `json:"status"`
	OutputFile *string           `json:"output_file_id"`
	ErrorFile  *string           `json:"error_file_id"`
	Created    int64             `json:"created_at"`
	Expires    int64             `json:"expires_at"`
	Counts     counts            `json:"request_counts"`
	Metadata   map[string]string `json:"metadata"`
	// Rest has when it became what, as in_progress_at, and what later versions know.
	Rest map[string]jsontext.Value `json:",embed"`

	// FileName is that of the input. A batch whose input is good has its Total. From Begun
	// on its map may run, and Results is where that leaves them.
	FileName string `json:"gpumux_filename"`
	Total    int64  `json:"gpumux_total,omitzero"`
	Begun    int64  `json:"gpumux_begun,omitzero"`
	Results  string `json:"gpumux_results,omitzero"`
}

type counts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// mistake is what is wrong with a line of the input, or with all of it.
type mistake struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param"`
	Line    *int64 `json:"line"`
}

type list[T any] struct {
	Object string `json:"object"`
	Data   []T    `json:"data"`
	More   bool   `json:"has_more"`
}

func listOf[T any](data []T) *list[T] { return &list[T]{Object: "list", Data: data} }

func (b *batch) move(to string) {
	b.Status, b.Rest[to+"_at"] = to, strconv.AppendInt(nil, time.Now().Unix(), 10)
}

func (b *batch) over() bool {
	return slices.Contains([]string{completed, failed, expired, cancelled}, b.Status)
}

const filePrefix, batchPrefix, recordEnding = "file-", "batch_", ".json"

// What a batch writes has the digits of its ID, and one more.
var goodID = regexp.MustCompile(`^(` + filePrefix + `|` + batchPrefix + `)[0-9a-f]{32}[01]?$`)

// newID makes IDs whose order is that of time.
func newID(prefix string) string {
	return prefix + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
}

// shelf has the records of one user.
type shelf struct {
	store *store.Store
	owner string
}

func (s shelf) key(id string) string {
	if strings.HasPrefix(id, filePrefix) {
		return path.Join(names.Batches, s.owner, "files", id+recordEnding)
	}
	return path.Join(names.Batches, s.owner, id+recordEnding)
}

// content is the key of a file's bytes.
func (s shelf) content(id string) string { return s.key(id) + "l" }

// read reads the record of an ID into a file or a batch.
func (s shelf) read(ctx context.Context, id string, into any) error {
	data, err := s.store.Objects.ReadAll(ctx, s.key(id))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return err
}

// find is read for a request. What is another user's is not there.
func (s shelf) find(ctx context.Context, prefix, id string, into any) {
	err := error(fs.ErrNotExist)
	if goodID.MatchString(id) && strings.HasPrefix(id, prefix) {
		err = s.read(ctx, id, into)
	}
	refuseIf(errors.Is(err, fs.ErrNotExist), http.StatusNotFound, "", "there is no %.100q of yours", id)
	check(err)
}

func (s shelf) write(ctx context.Context, id string, record any) {
	check(s.store.Objects.Put(ctx, s.key(id), bytes.NewReader(must(json.Marshal(record))), objects.Creation{Reserved: true}))
}

// change changes a batch as the store has it by now.
func (s *Server) change(ctx context.Context, on shelf, b *batch, f func(*batch)) {
	s.changing.Lock()
	defer s.changing.Unlock()
	now := &batch{}
	check(on.read(ctx, b.ID, now))
	f(now)
	on.write(ctx, b.ID, now)
	*b = *now
}

// draft is a file that comes into being. Abort it in any case.
type draft struct {
	*objects.Writer
	file  *file
	lines int64
	on    shelf
}

func (s shelf) draft(ctx context.Context, f *file) *draft {
	return &draft{Writer: must(s.store.Objects.Create(ctx, s.content(f.ID), objects.Creation{Reserved: true})), file: f, on: s}
}

func (d *draft) row(row []byte) {
	d.lines++
	d.file.Bytes += int64(must(d.Write(append(text.Unescaped(row), '\n'))))
}

// commit makes it a file, if anything was written.
func (d *draft) commit(ctx context.Context) (id *string) {
	if d.file.Bytes == 0 {
		return nil
	}
	check(d.Close())
	if err := try(func() { d.on.write(ctx, d.file.ID, d.file) }); err != nil {
		check(errors.Join(err, d.on.store.Objects.Delete(context.WithoutCancel(ctx), d.on.content(d.file.ID))))
	}
	return &d.file.ID
}
