package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpumux/gpumux/starter/cli/screen"
)

// Watch shows the devices again and again until ctx ends: in place on a terminal, one after the other elsewhere.
func Watch(ctx context.Context, to io.Writer, every time.Duration, asJSON, links bool, look func() (*Report, error)) error {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		r, err := look()
		if err != nil {
			return err
		}
		now := time.Now().Truncate(time.Second)
		r.Time = &now
		switch {
		case asJSON:
			out := json.NewEncoder(to)
			out.SetEscapeHTML(false)
			err = out.Encode(r)
		case screen.Redraws(to):
			var text strings.Builder
			if err = r.printMoment(screen.Visible(&text), links); err == nil {
				err = screen.Redraw(to, text.String())
			}
		default:
			err = r.printMoment(to, links)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

// printMoment is what --watch shows of one look.
func (r *Report) printMoment(to io.Writer, links bool) error {
	fmt.Fprintln(to, r.Time.Format(time.RFC3339))
	if r.Reason != "" {
		fmt.Fprintln(to, r.Reason)
	}
	if err := r.Print(to, links); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to)
	return err
}
