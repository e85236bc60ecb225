package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagMistake adds to a mistake in a flag what was likely meant.
func flagMistake(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if near := nearFlag(c.Flags(), unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "duration" {
		name, value := invalid.GetFlag().Name, invalid.GetValue()
		if _, bare := time.ParseDuration(value + "s"); bare == nil {
			return fmt.Errorf("--%s %s has no unit; write %ss", name, value, value)
		}
		return fmt.Errorf("--%s %q is no time; write 90s, 5m or 2h", name, value)
	}
	return err
}

// nearFlag is the flag whose name begins like this one or differs in few letters, or
// nothing.
func nearFlag(flags *pflag.FlagSet, name string) (near string) {
	least := 3
	flags.VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if strings.HasPrefix(f.Name, name) {
			d = min(d, 1)
		}
		if !f.Hidden && d < least && d < len(name) {
			near, least = f.Name, d
		}
	})
	return near
}

// distance is how many letters have to be put in, left out or replaced (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
