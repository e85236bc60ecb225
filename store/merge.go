package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gpumux/gpumux/internal/contract"
)

// Merge writes the results of all parts of a folder into one file in order of index and counts them. Parts may overlap and
// fill each other's holes. If an item has several results, that of the part which begins first counts. If an index from 0 to
// Items-1 has none, nothing is written, and Merged says what is missing. Damaged parts are set aside. The output appears whole or
// not at all. With Index the file's index is written too, so that Items reads any stretch of it. With Cache later maps find the results.
func (s *Store) Merge(ctx context.Context, in contract.MergeInput) (contract.Merged, error) {
	merged, err := s.merge(ctx, in)
	if err != nil {
		return contract.Merged{}, fmt.Errorf("merge %s into %s: %w", in.Parts, in.Output, err)
	}
	return merged, nil
}

func (s *Store) merge(ctx context.Context, in contract.MergeInput) (merged contract.Merged, err error) {
	output, err := s.output(in.Output)
	if err != nil {
		return merged, err
	}
	folder, err := s.Writable(in.Parts)
	if err != nil {
		return merged, err
	}
	if in.Items < 0 {
		return merged, fmt.Errorf("%d items are less than none", in.Items)
	}
	if err := s.Holds(ctx, in.Parts, in.Claim); err != nil {
		return merged, err
	}
	var damage []string
	err = s.scan(ctx, folder, func(lines *walker) error {
		m := &merger{s: s, in: in, lines: lines}
		merged, err = m.run(ctx, output)
		return err
	}, func(err error) { damage = append(damage, err.Error()) })
	if err == nil && merged.Missing != "" && len(damage) > 0 {
		merged.Missing += "; " + damage[0]
	}
	if err == nil && merged.Missing == "" && in.Cache != nil {
		err = s.remember(ctx, *in.Cache, in.Items, output)
	}
	return merged, err
}

// merger writes the lines of a walk into one file.
type merger struct {
	s     *Store
	in    contract.MergeInput
	lines *walker

	to       *bufio.Writer
	merged   contract.Merged
	outcomes tally
}

func (m *merger) run(ctx context.Context, output string) (contract.Merged, error) {
	bytes := int64(0)
	for _, p := range m.lines.parts {
		bytes += p.Bytes
	}
	file, err := m.s.create(ctx, output, creation{bytes: bytes})
	if err != nil {
		return contract.Merged{}, err
	}
	defer file.Abort()
	m.merged.Items = m.in.Items
	m.to = bufio.NewWriterSize(file, 512<<10)
	if err := m.writeLines(); err != nil || m.merged.Missing != "" {
		return m.merged, err
	}
	if err := errors.Join(m.to.Flush(), file.Close()); err != nil {
		return contract.Merged{}, err
	}
	m.merged.Output = m.s.Locate(output)
	m.merged.Succeeded, m.merged.Failed, m.merged.Faults = m.outcomes.succeeded, m.outcomes.failed, m.outcomes.faults
	return m.merged, nil
}

// writeLines writes the lines up to the last, or up to the first that is missing.
func (m *merger) writeLines() error {
	for next := int64(0); ; next++ {
		c, err := m.lines.step()
		switch {
		case err != nil && err != io.EOF:
			return err
		case next < m.in.Items && (err == io.EOF || c.index > next):
			m.merged.Missing = fmt.Sprintf("item %d has no result in %s", next, m.in.Parts)
			return nil
		case err == io.EOF:
			return nil
		case c.index >= m.in.Items:
			return &OwnerError{fmt.Sprintf("part %s holds item %d, but there are only %d; the folder is another map's", c.body.url,
				c.index, m.in.Items)}
		}
		m.outcomes.count(c.outcome)
		m.merged.Bytes += int64(len(c.line))
		if _, err := m.to.Write(c.line); err != nil {
			return err
		}
	}
}
