package columns

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

type arrowTable struct{ *ipc.FileReader }

func openArrow(file *ranged) (table, error) {
	r, err := ipc.NewFileReader(io.NewSectionReader(file, 0, file.size), ipc.WithBodySizeLimit(file.size))
	if err != nil {
		return nil, err
	}
	file.ahead = maxAhead
	return arrowTable{r}, nil
}

func (t arrowTable) names() (all []string) {
	for _, f := range t.Schema().Fields() {
		all = append(all, f.Name)
	}
	return all
}

func (t arrowTable) each(ctx context.Context, at []int, f func(columns []arrow.Array) error) error {
	columns := make([]arrow.Array, len(at))
	for n := range t.NumRecords() {
		batch, err := t.RecordBatchAt(n)
		if err != nil {
			return err
		}
		for i, column := range at {
			columns[i] = batch.Column(column)
		}
		err = f(columns)
		batch.Release()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
