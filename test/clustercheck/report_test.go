//go:build linux

package clustercheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// variable names the folder that fetch.sh has filled.
const variable = "GPUMUX_CLUSTER"

func TestMain(m *testing.M) {
	folder := os.Getenv(variable)
	if folder == "" {
		os.Exit(m.Run())
	}
	var err error
	if c.folder, err = filepath.Abs(folder); err == nil {
		err = c.start()
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = report.write()
	}
	if err = errors.Join(err, c.end()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// inCluster leaves a part out where there are no programs for it. What a failed part left
// away is there again.
func inCluster(t *testing.T) {
	t.Helper()
	if os.Getenv(variable) == "" {
		rig.Because(t, rig.Cluster, "make cluster-check starts it")
	}
	for _, p := range c.order[:c.base] {
		if !p.alive() {
			require.NoError(t, p.start())
		}
	}
}

// row is a line of the report.
type row struct {
	part         string
	items, twice int64
	took         time.Duration
	note         string
	err          error
}

type rows []row

var report rows

// judge waits for the maps of a part and adds its row. Most is how many items may have
// run twice; -1 is any number.
func judge(t *testing.T, part string, limit int64, note string, jobs ...*job) {
	t.Helper()
	r := row{part: part, note: note}
	for _, j := range jobs {
		twice, err := j.check()
		r.items, r.twice, r.took, r.err = r.items+j.items, r.twice+twice, max(r.took, j.took), errors.Join(r.err, err)
	}
	if limit >= 0 && r.twice > limit {
		r.err = errors.Join(r.err, fmt.Errorf("%d items ran twice, and at most %d may", r.twice, limit))
	}
	record(t, r)
}

// record adds a row, and fails the part where something is wrong.
func record(t *testing.T, r row) {
	t.Helper()
	report = append(report, r)
	if r.err != nil {
		t.Errorf("%s: %v", r.part, r.err)
	}
}

// write prints the report and keeps it.
func (all rows) write() error {
	if len(all) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("| part | items | ran twice | seconds | ok |\n|---|---|---|---|---|\n")
	for _, r := range all {
		status := "yes"
		if r.err != nil {
			first, _, _ := strings.Cut(r.err.Error(), "\n")
			status = "**no**: " + first
		}
		if r.note != "" {
			status += "; " + r.note
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %.1f | %s |\n", r.part, r.items, r.twice, r.took.Seconds(), status)
	}
	fmt.Print(text.String())
	return os.WriteFile(filepath.Join(c.folder, "report.md"), []byte(text.String()), 0o644)
}
